#!/bin/sh
# Usage: rootfs.sh PROGRAM ROOT
# Assembles the root directory of the image: the program, its shared libraries, user, certificates.
set -eu
program=$1
root=$2

mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/etc/longshore" "$root/tmp" "$root/data"
install -m 0755 "$program" "$root/usr/bin/longshore"

# A static program has no libraries: ldd fails, and there is nothing to copy.
if libraries=$(ldd "$program" 2>/dev/null); then
    if printf '%s\n' "$libraries" | grep 'not found'; then
        echo "rootfs.sh: a library of $program is missing" >&2
        exit 1
    fi
    printf '%s\n' "$libraries" | grep -o '/[^ ]*' | sort -u | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
fi

echo 'longshore:x:65532:65532::/data:/usr/bin/longshore' > "$root/etc/passwd"
echo 'longshore:x:65532:' > "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
cat > "$root/etc/longshore/longshore.toml" <<'END'
listen = "0.0.0.0:7070"
data = "/data"
log_format = "json"
END
if [ -r /etc/ssl/certs/ca-certificates.crt ]; then
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
fi

chmod 1777 "$root/tmp"
chmod 0700 "$root/data"
chown -R 0:0 "$root"
chown 65532:65532 "$root/data"
