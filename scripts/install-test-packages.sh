#!/usr/bin/env bash
# Installs what the tests use and this machine lacks: Debian packages as root, Rust components if
# rustup is here, cargo-deny by cargo. Tests whose tools are missing skip themselves and say so, so a machine where
# nothing can be installed still runs the others; formatter and linter are not optional.
set -euo pipefail

# command:package
tools="setfacl:acl fusermount3:fuse3 nfs-ls:libnfs-utils git:git sqlite3:sqlite3 flock:util-linux qemu-storage-daemon:qemu-system-common nbdfuse:libnbd-bin man:man-db zsh:zsh fish:fish lintian:lintian systemd-analyze:systemd"

missing=()
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
for tool in $tools; do
    PATH=$PATH:/sbin:/usr/sbin command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
            >/dev/null || echo "could not install ${missing[*]}: tests that need them are skipped"
    else
        echo "not installed: ${missing[*]}; tests that need them are skipped"
    fi
fi

# The S3 server of the end-to-end tests; they install it themselves if this did not.
"$(dirname "$0")"/moto.sh >/dev/null || echo "could not install moto: the tests with an S3 server will fail"

for component in rustfmt clippy; do
    case $component in rustfmt) probe=fmt ;; *) probe=clippy ;; esac
    if ! cargo "$probe" --version >/dev/null 2>&1; then
        if command -v rustup >/dev/null; then
            rustup component add "$component"
        else
            echo "cargo $probe is missing and there is no rustup to install $component" >&2
            exit 1
        fi
    fi
done

# Any version will do. A build without optimisation and debug information: it is quicker to make, and
# the checks take two seconds with it.
if ! cargo deny --version >/dev/null 2>&1; then
    echo "installing cargo-deny, which takes a minute"
    CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --locked --debug cargo-deny@0.20.2 ||
        echo "could not install cargo-deny: licences, sources and advisories are not checked"
fi
