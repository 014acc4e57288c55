#!/bin/sh
# Usage: archive.sh PROGRAM VERSION TARGET DIR
# Writes DIR/longshore-VERSION-TARGET.tar.gz: program, manual pages, completions, unit, configuration.
# The same input gives the same bytes.
set -eu
program=$1
version=$2
target=$3
directory=$4
name=longshore-$version-$target
here=$(dirname "$0")

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$here/deb/stage.sh" "$program" "$scratch/$name"
cp -r "$here/systemd" "$scratch/$name/systemd"
cp "$here/longshore.toml" "$here/../README.md" "$here/../CHANGELOG.md" "$here/../LICENSE-APACHE" \
    "$here/../LICENSE-MIT" "$scratch/$name/"
mkdir -p "$directory"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" \
    -C "$scratch" -cf - "$name" | gzip -9 -n > "$directory/$name.tar.gz"
(cd "$directory" && sha256sum "$name.tar.gz" > "$name.tar.gz.sha256")
