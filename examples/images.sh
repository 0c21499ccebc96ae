#!/bin/sh
# Makes the small `local/...` images that some of these examples run, in this machine's Docker: `v1` and `v2` do nothing
# for ever, `broken` ends at once. Run it on every machine that is a node.
#   examples/images.sh                    from busybox:1.36
#   examples/images.sh IMAGE              from another image that has `sleep`, `true` and `false`
set -eu
base=${1:-busybox:1.36}

make() { # NAME TAG PROGRAM
  printf 'FROM %s\nLABEL version=%s\nSTOPSIGNAL SIGKILL\nENTRYPOINT %s\n' "$base" "$2" "$3" |
    docker build --quiet --tag "local/$1:$2" - >/dev/null
  echo "local/$1:$2"
}

for name in collector guard idle monitor; do
  make "$name" v1 '["sleep", "2147483647"]'
  make "$name" v2 '["sleep", "2147483647"]'
  make "$name" broken '["false"]'
done
