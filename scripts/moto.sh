#!/usr/bin/env bash
# Prints where moto_server is, an S3 server for tests; installs it from PyPI first if it is not there.
# It lives in an environment of its own below the root of the repository and touches nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

version=5.2.5
place=$PWD/target-tools/moto-$version

mkdir -p target-tools
# Tests run side by side; one of them installs.
exec 9>target-tools/moto.lock
flock 9
if [ ! -e "$place/complete" ]; then
    rm -rf "$place"
    python3 -m venv "$place" >&2
    "$place/bin/pip" install --quiet --disable-pip-version-check "moto[server]==$version" >&2
    touch "$place/complete"
fi
echo "$place/bin/moto_server"
