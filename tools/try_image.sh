#!/bin/sh
# Builds deploy/Dockerfile without a daemon, makes a campaign in the image, serves it, asks whether it
# is ready, and ends it by SIGTERM: exit status 0 if all of it went well.
#
#     sh tools/try_image.sh [BASE]      (as root; needs buildah, about 2 GB of disk and 3 minutes)
#
# BASE is the image to build on, python:3.12-slim by default. Where no registry can be reached, "debian"
# makes one of Debian 12 with its own Python (needs debootstrap). What pip on this machine is told of
# indexes is told to the pip in the image, too.
set -eu
cd "$(dirname "$0")/.."
base=${1:-docker.io/library/python:3.12-slim}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build() { buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }

if [ "$base" = debian ]; then
    base=docker.io/library/python:3.12-slim
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip bookworm "$work/debian"
    rm -f "$work"/debian/usr/lib/python3*/EXTERNALLY-MANAGED
    ln -s python3 "$work/debian/usr/bin/python"
    made=$(build from scratch)
    build add --quiet "$made" "$work/debian" /
    build config --env PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin "$made"
    build commit --quiet "$made" "$base"
fi

mounts=""
for place in /etc/pip.conf /etc/ssl/certs $(sed -n 's/.*= *//p' /etc/pip.conf 2>/dev/null); do
    case $place in file://*) place=$(dirname "${place#file://}") ;; esac  # an index and its files
    case $place in /*) [ -e "$place" ] && mounts="$mounts --volume $place:$place:ro" ;; esac
done
# shellcheck disable=SC2086 (several words)
build bud --isolation chroot --pull-never $mounts -f deploy/Dockerfile -t scopeval .

mkdir "$work/data"
chown -R 1000:1000 "$work/data"
container=$(build from --pull-never localhost/scopeval)
build run --isolation chroot --volume "$work/data:/data" "$container" -- sh -euc '
python -c "import numpy as np; np.save(\"/data/policy.npy\", np.full((3, 2), 0.5))"
scopeval campaign create /data/hall.campaign --policy /data/policy.npy --horizon 5 --episodes 10
scopeval serve-token create /data/hall.campaign plants --role plant
scopeval serve /data/hall.campaign --policy /data/policy.npy --host 0.0.0.0 &
service=$!
ready="import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8321/readyz\", timeout=5).read())"
for second in $(seq 60); do
    sleep 1
    python -c "$ready" 2>/dev/null && break
done
python -c "$ready"
kill -TERM $service
wait $service
[ ! -e /data/hall.campaign-wal ]
'
echo "the image was built, served and ended cleanly"
