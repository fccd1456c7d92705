# What is asked through strangers' clients of a server that wants certificates and passwords: of etcd and of Primacy the same, and
# then their answers are compared.
#
# $ENDPOINT is where the server is, as HOST:PORT; $CA, $CERT and $KEY are the files of who may come in, $FOREIGN_CERT and $FOREIGN_KEY
# those of another authority; $PYTHON runs $PROGRAM. The user is root, and its password secret-of-root.

export ETCDCTL_API=3
client() { timeout 60 etcdctl --endpoints "https://$ENDPOINT" --cacert "$CA" "$@" 2>&1; }
known() { client --cert "$CERT" --key "$KEY" "$@"; }
root() { known --user root:secret-of-root "$@"; }
run() { echo "\$ $*"; root "$@"; echo "[$?]"; }
until_said() {
    tries=0
    until grep -q -e "$2" "$1.out"; do
        tries=$((tries + 1)); [ $tries -lt 600 ] || { echo "$1 never said $2"; return; }
        sleep 0.05
    done
}
# Begins something that lasts.
begin() {
    name=$1; shift; echo "\$ $* &"
    etcdctl --endpoints "https://$ENDPOINT" --cacert "$CA" --cert "$CERT" --key "$KEY" --user root:secret-of-root "$@" >"$name.out" 2>&1 &
    echo $! >"$name.pid"
}
ends() { kill -TERM "$(cat "$1.pid")" 2>/dev/null; wait "$(cat "$1.pid")" 2>/dev/null; echo "[$1: $?]"; cat "$1.out"; }
# Whether one is refused. What the client's own library says of a connection that it has lost is its own business.
refused() {
    echo "\$ $*"
    "$@" >refused.out 2>&1
    case $? in
        0) echo "not refused:"; cat refused.out ;;
        124) echo "never answered" ;;
        *) echo "refused" ;;
    esac
}
in_which_words() { grep -o -e 'etcdserver: [^"]*' refused.out | sort -u; }

echo "== who may come in"
run put a 1
run get a -w json
run put b 2 --prev-kv
run get '' --prefix --keys-only
begin seen watch s/ --prefix --rev 1
run put s/1 one
run put s/2 two
run del s/1
until_said seen DELETE; ends seen
begin lead elect e alpha
until_said lead alpha
begin second elect e beta
begin listens elect e --listen
until_said listens alpha
ends lead
until_said second beta
until_said listens beta
run get e/ --prefix --print-value-only
ends second
ends listens
run lock m -- echo held
run lease grant 500 -w json

echo "== who may not"
refused known --user root:wrong put a x; in_which_words
refused known --user nobody:secret-of-root put a x; in_which_words
refused known --user root:wrong get a; in_which_words
refused known --user root:wrong watch a; in_which_words
# Without a user, etcd takes the name in the certificate for one, also where there is none, and says that this one has no right.
refused known watch a
refused known put a x
refused known get a
quickly="--dial-timeout 2s --command-timeout 2s"
refused client $quickly --user root:secret-of-root put a x
refused client $quickly --user root:secret-of-root --cert "$FOREIGN_CERT" --key "$FOREIGN_KEY" put a x
refused timeout 60 etcdctl --endpoints "$ENDPOINT" $quickly --user root:secret-of-root put a x
run get a

echo "== what anybody may ask who shows a certificate"
known endpoint status >/dev/null; echo "[$?]"
known member list >/dev/null; echo "[$?]"

echo "== a program in Python"
# What its library writes to its own log is left out.
"$PYTHON" "$PROGRAM" "$ENDPOINT" "$CA" "$CERT" "$KEY" 2>python.err; echo "[$?]"
run get p/ --prefix

echo "== the end"
