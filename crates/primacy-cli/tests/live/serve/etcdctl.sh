# What is asked of a server through etcdctl: of etcd and of Primacy the same, and then their answers are compared.
#
# $ENDPOINT is where the server is, as HOST:PORT. Each command is shown before what it says, with how it ended behind. What runs beside
# the rest writes to a file of its own, and is shown at its end.

export ETCDCTL_API=3
client() { etcdctl --endpoints "$ENDPOINT" "$@" 2>&1; }
run() { echo "\$ $*"; client "$@"; echo "[$?]"; }
# A transaction: its three parts, as etcdctl reads them.
txn() {
    echo "\$ txn: $1 | $2 | $3"
    # Of each part, its lines and then an empty one.
    for part in "$1" "$2" "$3"; do printf '%s' "${part:+$part;}"; echo; done | tr ';' '\n' | client txn "${4:--w=simple}"
    echo "[$?]"
}
# Begins something that lasts, and waits until it has said as much as it is known to say.
beside() { name=$1; shift; echo "\$ $* &"; etcdctl --endpoints "$ENDPOINT" "$@" >"$name.out" 2>&1 & echo $! >"$name.pid"; }
until_said() {
    tries=0
    until grep -q -e "$2" "$1.out"; do
        tries=$((tries + 1)); [ $tries -lt 600 ] || { echo "$1 never said $2"; return; }
        sleep 0.05
    done
}
# Waits until something holds that has no output.
until_true() {
    tries=0
    until eval "$1"; do
        tries=$((tries + 1)); [ $tries -lt 600 ] || { echo "never: $1"; return; }
        sleep 0.05
    done
}
said() { echo "$1 said:"; cat "$1.out"; }
# The revision of the map.
revision() { client get absent -w json | sed 's/.*"revision":\([0-9]*\).*/\1/'; }
# A process that has seen what it should, and would wait for more.
ends() { kill -TERM "$(cat "$1.pid")" 2>/dev/null; wait "$(cat "$1.pid")" 2>/dev/null; echo "[$1: $?]"; said "$1"; }
finishes() { wait "$(cat "$1.pid")" 2>/dev/null; echo "[$1: $?]"; said "$1"; }

echo "== put and get"
run put a 1
run put a 2 -w json
run put b 3 --prev-kv
run put b 4 --prev-kv -w fields
run put b 5 --prev-kv -w json
run put c ''
run put '' x
run put a --ignore-value
run put a x --ignore-lease
run put absent --ignore-value
run put absent x --ignore-lease
run put 'a key with spaces' 'and a value
of two lines'
run put ключ значение
run put p/1 one
run put p/2 two
run put p/3 three
run put p/1 uno
run put p0 outside
for format in simple fields json; do
    run get a -w "$format"
    run get p/ --prefix -w "$format"
    run get p/ --prefix --keys-only -w "$format"
    run get p/ --prefix --limit 2 -w "$format"
    run get absent -w "$format"
done
run get a --hex
run get a --print-value-only
run get ключ -w json
run get a c
run get c a
run get a a
run get b --from-key --limit 3
run get '' --prefix --keys-only
run get '' --from-key --keys-only
run get ''
run get a --prefix --from-key
for order in ASCEND DESCEND; do
    for by in CREATE KEY MODIFY VALUE VERSION; do run get p/ --prefix --order $order --sort-by $by; done
done
run get p/ --prefix --sort-by VALUE --limit 2 -w json
run get p/ --prefix --order DESCEND
run get p/ --prefix --order UP
run get p/ --prefix --sort-by AGE
run get a --rev 2
run get a --rev 3 -w json
run get b --rev 3 -w json
run get p/ --prefix --rev 12
run get a --rev 1 -w json
run get a --rev 1000
run get a --rev -1
run get a --consistency s
run get a --limit -1
run get p/ --prefix --limit -1

echo "== del"
run del absent
run del a --prev-kv
run del a -w json
run del p/1 p/3 --prev-kv -w json
run put q/1 1
run put q/2 2
run put q/3 3
run del q/ --prefix --prev-kv
run del ''
run del z --from-key -w fields
run put a 1 -w json
run get a -w json
run get a --rev 4
run get p/1 --rev 13 -w fields

echo "== txn"
run put t 5
run put t 6
txn 'value("t") = "6"' 'put t 7;get t' 'get t'
txn 'value("t") = "6"' 'put t 8' 'get t;get absent'
txn 'value("t") != "6"' 'get t' 'get a'
txn 'value("t") > "6"' 'get t' 'get a'
txn 'value("t") < "6"' 'get t' 'get a'
txn 'version("t") = "3"' 'get t' 'get a'
txn 'version("t") != "3"' 'get t' 'get a'
txn 'version("t") > "2"' 'get t' 'get a'
txn 'version("t") < "2"' 'get t' 'get a'
txn 'create("t") = "0"' 'get t' 'get a'
txn 'c("t") > "0"' 'get t' 'get a'
txn 'c("absent") = "0"' 'get t' 'get a'
txn 'mod("t") > "1"' 'get t' 'get a'
txn 'm("t") < "1"' 'get t' 'get a'
txn 'm("absent") = "0"' 'get t' 'get a'
txn 'ver("absent") = "0"' 'get t' 'get a'
txn 'val("absent") = ""' 'get t' 'get a'
txn 'val("absent") != "x"' 'get t' 'get a'
txn 'value("t") = "7";version("t") = "3"' 'get t' 'get a'
txn 'value("t") = "7";version("t") = "4"' 'get t' 'get a'
txn '' 'put u/1 1;put u/2 2;get u/ --prefix;del u/3' ''
txn '' 'put u/1 1;put u/2 2;get u/ --prefix;del u/3' '' -w=json
txn '' 'put u/1 x --prev-kv;del u/2 --prev-kv;get u/ --prefix --rev 2' '' -w=json
txn '' 'put u/1 x --prev-kv;del u/2 --prev-kv;get u/1' '' -w=fields
txn '' 'put u/1 1;put u/1 2' ''
txn '' 'put u/1 1;del u/1' ''
txn '' 'put u/1 1;del u/ --prefix' ''
txn '' 'get t' 'put u/1 1;put u/1 2'
txn '' 'del u/1;del u/ --prefix' ''
txn '' 'get t --rev 1000' ''
txn '' 'put u/9 9;get t --rev 1000' ''
run get u/9
txn '' 'put absent --ignore-value' ''
txn '' 'put u/1 --ignore-lease x' ''
txn '' 'put u/1 x --lease=1234' ''
txn '' '' ''
txn 'version("t") = "3"' '' ''
txn 'version("") = "3"' '' ''
txn '' 'get ""' ''
txn '' "$(i=0; while [ $i -lt 128 ]; do printf 'put many/%d x;' $i; i=$((i + 1)); done; printf 'get t')" '' | tail -n 3
txn '' "$(i=0; while [ $i -lt 127 ]; do printf 'put many/%d x;' $i; i=$((i + 1)); done; printf 'get many/5')" '' | tail -n 4
run get many/ --prefix --keys-only -w json

echo "== leases"
grant() { echo "\$ lease grant $1"; lease=$(client lease grant -- "$1" | tee grant.out | sed -n 's/^lease \([0-9a-f]*\) .*/\1/p'); cat grant.out; }
run lease list
grant 1000; first=$lease
grant 2000; second=$lease
grant 0; run lease revoke "$lease"
grant -1; run lease revoke "$lease"
grant 9000000000
grant 9000000001
run lease grant many
run lease grant 500 -w json
run lease list
run put l/1 1 --lease "$first"
run get l/1 -w json
run lease timetolive "$first"
run lease timetolive "$first" --keys
run lease timetolive "$first" --keys -w json
run lease timetolive "$second" -w fields
run lease keep-alive --once "$first"
run lease keep-alive --once "$first" -w json
run lease keep-alive --once 1234
run lease timetolive 1234
run lease timetolive 1234 -w json
run lease revoke 1234
run put l/4 4 --lease 1234
run put l/1 x --ignore-lease
run get l/1 -w json
run put l/1 --ignore-value --lease "$second"
run lease timetolive "$first" --keys
run lease timetolive "$second" --keys
run put l/1 y
run get l/1 -w json
run lease timetolive "$second" --keys
run put l/2 2 --lease "$first"
run put l/3 3 --lease "$first"
run put l/4 4 --lease "$second"
run lease revoke "$first"
run get l/ --prefix -w json
run lease revoke "$first"
run put l/1 z --lease "$first"
run lease revoke "$second" -w json
run get l/ --prefix --keys-only -w json
beside expiry watch l/short --rev "$(($(revision) + 1))"
grant 1; run put l/short x --lease "$lease"
until_said expiry DELETE
ends expiry
run get l/short
run lease timetolive "$lease"

echo "== watch"
run put w/1 1 -w json
run put w/1 2
run put w/2 1
run del w/1
run put w/1 3 -w json
now=$(client get w/1 -w json | sed 's/.*"mod_revision":\([0-9]*\).*/\1/')
beside from watch w/1 --rev $((now - 4)) --prev-kv
until_said from '^3$'; ends from
beside prefix watch w/ --prefix --rev $((now - 4)) -w json
until_said prefix 'Mw=='
run put w/4 '4'
until_said prefix 'dy80'; ends prefix
beside range watch w/2 w/5 --rev $((now - 4))
until_said range 'w/4'; ends range
beside fields watch w/1 --rev "$now" -w fields
until_said fields Value; ends fields
beside future watch w/6 --rev $((now + 3))
run put w/6 early
run put w/6 late
run put w/6 later
until_said future later; ends future
last=$(revision)
beside live watch w/ --prefix --prev-kv --rev $((last + 1))
run put w/7 a
run put w/7 b
txn '' 'put w/8 c;del w/7' ''
run put w/end x
until_said live end; ends live
beside executes watch w/9 --rev "$now" -- sh -c 'echo "$ETCD_WATCH_EVENT_TYPE of $ETCD_WATCH_KEY: $ETCD_WATCH_VALUE"'
run put w/9 '"nine"'
until_said executes PUT..of
run del w/9
until_said executes DELETE..of; ends executes
beside empty watch z a
finishes empty

echo "== compaction"
at=$(revision)
run compaction "$at" --physical
run compaction "$at"
run compaction $((at - 1))
run compaction $((at + 1000))
run compaction 0
run compaction -- -1
run get w/1 --rev $((at - 1))
run get w/1 --rev "$at"
run get w/1 --rev "$at" -w json
run get w/1 -w json
txn '' "get t --rev $((at - 1))" ''
beside compacted watch w/1 --rev $((at - 3))
finishes compacted
run put w/1 after
beside kept watch w/1 --rev "$at"
until_said kept after; ends kept
run put w/1 again -w json
run compaction $((at + 1)) -w json
run get w/1 --rev "$at"
beside cut watch w/ --prefix --rev "$at" -w json
finishes cut

echo "== elect"
beside lead elect e alpha
until_said lead alpha
beside second elect e beta
until_true '[ "$(client get e/ --prefix --keys-only | grep -c e/)" = 2 ]'
beside listens elect e --listen
until_said listens alpha
run get e/ --prefix --sort-by CREATE
ends lead
until_said second beta
until_said listens beta
run get e/ --prefix --print-value-only
ends second
ends listens
run get e/ --prefix

echo "== lock"
beside holds lock m
until_said holds 'm/'
beside waits lock m echo held
until_true '[ "$(client get m/ --prefix --keys-only | grep -c m/)" = 2 ]'
said waits
ends holds
finishes waits
run lock m -- sh -c 'echo "$ETCD_LOCK_KEY at $ETCD_LOCK_REV"'
run lock m -- sh -c 'exit 3'
run lock m --ttl 100 true
run get m/ --prefix

echo "== limits"
head -c 1400000 /dev/zero | tr '\0' x | client put big/1 -w json; echo "[$?]"
client get big/1 --print-value-only | wc -c
head -c 1572800 /dev/zero | tr '\0' x | client put big/2; echo "[$?]"
head -c 1572850 /dev/zero | tr '\0' x | client put big/3; echo "[$?]"
head -c 1572870 /dev/zero | tr '\0' x | client put big/4; echo "[$?]"
head -c 2000000 /dev/zero | tr '\0' x | client put big/5; echo "[$?]"
head -c 2500000 /dev/zero | tr '\0' x | client put big/6; echo "[$?]"
run get big/ --prefix --keys-only

echo "== the server"
run endpoint health
run endpoint status
run endpoint status -w json
run endpoint status -w fields
run alarm list
