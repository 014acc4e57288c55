UPDATE @.settings SET virtual_now = greatest(virtual_now, $1)
