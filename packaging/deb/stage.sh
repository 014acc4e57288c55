#!/bin/sh
# Usage: stage.sh PROGRAM DIR
# Writes what the packages contain beside files of the repository: the program, manual pages,
# completions.
set -eu
program=$1
directory=$2

rm -rf "$directory"
mkdir -p "$directory/man" "$directory/completions"
install -m 0755 "$program" "$directory/longshore"
"$directory/longshore" man "$directory/man"
"$directory/longshore" completions bash > "$directory/completions/longshore.bash"
"$directory/longshore" completions zsh > "$directory/completions/_longshore"
"$directory/longshore" completions fish > "$directory/completions/longshore.fish"
