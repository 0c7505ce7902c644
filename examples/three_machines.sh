#!/usr/bin/env bash
# A job on three machines, of which one is lost and comes back. The machines are network namespaces of this one.
#
#     make demo-nodes        (or, where holdfast is installed:  examples/three_machines.sh)
#
# It needs Linux, bash, ip (iproute2) and unshare (util-linux); root, or a system that lets users have namespaces.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
holdfast=${HOLDFAST:-holdfast}
last_step=90

# Everything below runs in namespaces of its own. They end with this script, whatever ends it, and nothing is left.
if [ "${1:-}" != inside ]; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(--user --map-root-user)
  unshare "${as_root[@]}" --net --mount --pid --fork true 2>/dev/null || {
    echo "three_machines.sh: only root may create namespaces on this system: run it with sudo" >&2
    exit 2
  }
  exec unshare "${as_root[@]}" --net --mount --pid --fork --kill-child --mount-proc bash "$0" inside
fi
declare -A agent
clean_up() {
  trap '' INT TERM
  kill "${agent[@]}" 2>/dev/null || true
  wait  # whoever still writes there would be in the way
  rm -rf "$work"
}
trap 'exit 130' INT TERM
work=$(mktemp -d)
trap clean_up EXIT
mount -t tmpfs none /run

say() { printf '\n--- %s\n' "$*"; }

# The network: a bridge, and a cable to each machine.
ip link add bridge type bridge forward_delay 0
ip link set bridge up
for n in 1 2 3; do
  ip netns add "machine$n"
  ip link add "port$n" type veth peer name eth0 netns "machine$n"
  ip link set "port$n" master bridge up
  ip -n "machine$n" link set lo up
  ip -n "machine$n" addr add "10.0.0.$n/24" dev eth0
  ip -n "machine$n" link set eth0 up
done

# The same command on each machine. All that differs is where it runs.
HOLDFAST_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
XDG_STATE_HOME=$work/state
export HOLDFAST_TOKEN XDG_STATE_HOME
start() {
  ip netns exec "machine$1" unshare --uts sh -c 'hostname "$0" && exec "$@"' "machine$1" \
    "$holdfast" run --nnodes 2:3 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint 10.0.0.1:29400 --rdzv-id demo \
    --rdzv-conf join_timeout=60 --log-dir "$work/logs" "$here/elastic_job.py" --directory "$work" --steps $last_step \
    > >(sed -u "s/^/machine$1 | /") 2>&1 &
  agent[$1]=$!
}
wait_for_step() {
  until [ "$(cat "$work/steps" 2>/dev/null || echo 0)" -ge "$1" ]; do
    kill -0 "${agent[1]}" || exit 1
    sleep 0.05
  done
}

say "three machines start the same command: $holdfast run --nnodes 2:3 ..."
for n in 1 2 3; do start $n; done
wait_for_step 15

say "machine3 is lost: kill -9 of its agent. Its workers die with it; the other machines continue with four workers"
kill -9 "${agent[3]}"
wait "${agent[3]}" 2>/dev/null || true
wait_for_step 30

say "machine3 is back, with the same command. The others let it in, and six workers continue"
start 3

code=0
for n in 1 2 3; do wait "${agent[$n]}" || code=$?; done
wait  # for what is still to be shown
say "the whole run: holdfast report"
"$holdfast" report "$work/logs"
exit $code
