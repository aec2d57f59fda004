#!/bin/bash
# A real Kubernetes 1.20 control plane on this machine, for `make test-kubernetes`: API server, controllers, etcd.
#
#   kube_real.sh build DIR    from Debian's source package (bookworm; as root; about 9 minutes of CPU, 3 GB)
#   kube_real.sh up DIR       start on loopback; DIR/kubeconfig is an administrator's
#   kube_real.sh down DIR     stop it
#
# There are no nodes and no scheduler: the tests bring fake kubelets, and scheduling is what they test.
set -euo pipefail
verb=${1:?build, up or down} dir=$(realpath -m "${2:?folder}")
port=${COTENANT_KUBE_PORT:-16443} etcd_port=${COTENANT_ETCD_PORT:-12379}

build() {
    [ ! -x "$dir/bin/kube-controller-manager" ] || { echo "built already: $dir/bin"; return; }
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends golang-1.19-go etcd-server jq rsync dpkg-dev \
        golang-github-modern-go-reflect2-dev golang-github-modern-go-concurrent-dev >/dev/null
    # The sources, through an apt state of our own: nothing of the machine's is changed.
    mkdir -p "$dir"/apt/{lists/partial,cache/archives/partial,parts} "$dir/bin" "$dir/home"
    sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$dir/apt/parts/src.sources"
    cat >"$dir/apt/apt.conf" <<CONF
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$dir/apt/parts";
Dir::State::lists "$dir/apt/lists";
Dir::Cache "$dir/apt/cache";
CONF
    export APT_CONFIG=$dir/apt/apt.conf
    cd "$dir"
    if [ ! -d src ]; then
        apt-get update -qq
        apt-get source -qq --download-only kubernetes
        dpkg-source -x kubernetes_*.dsc src >/dev/null
    fi
    # The reflect2 that came with it corrupts memory with Go 1.18 and later; Debian's own does not.
    reflect=src/vendor/github.com/modern-go/reflect2
    rm -f $reflect/*.go $reflect/*.s
    cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} $reflect/
    cd src
    export PATH=/usr/lib/go-1.19/bin:$PATH CGO_ENABLED=0 GOPROXY=off HOME=$dir/home GOPATH=$PWD/.go
    export KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_COMMIT=debian KUBE_GIT_TREE_STATE=archive KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20
    mkdir -p .go/src/k8s.io
    [ -L .go/src/k8s.io/kubernetes ] || ln -s ../../.. .go/src/k8s.io/kubernetes
    make WHAT="cmd/kube-apiserver cmd/kube-controller-manager"
    cp _output/local/bin/linux/amd64/kube-{apiserver,controller-manager} "$dir/bin/"
    strip "$dir"/bin/* || true
}

begin() { # NAME COMMAND...: in the background, with its output and its number in the folder
    local name=$1
    shift
    "$@" >"$dir/run/$name.log" 2>&1 &
    echo $! >"$dir/run/$name.pid"
}

up() {
    rm -rf "$dir/run"
    mkdir -p "$dir/run"
    local run=$dir/run etcd=http://127.0.0.1:$etcd_port peer=http://127.0.0.1:$((etcd_port + 1))
    local token
    token=$(openssl rand -hex 16)
    openssl genrsa -out "$run/sa.key" 2048 2>/dev/null
    echo "$token,admin,admin,system:masters" >"$run/tokens.csv"
    cat >"$dir/kubeconfig" <<CONF
apiVersion: v1
kind: Config
clusters: [{name: real, cluster: {server: "https://127.0.0.1:$port", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: real, context: {cluster: real, user: admin}}]
current-context: real
CONF
    begin etcd etcd --data-dir "$run/etcd" --listen-client-urls $etcd --advertise-client-urls $etcd \
        --listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster default=$peer --unsafe-no-fsync
    begin apiserver "$dir/bin/kube-apiserver" --etcd-servers=$etcd --bind-address=127.0.0.1 --secure-port="$port" \
        --endpoint-reconciler-type=none --cert-dir="$run/pki" --service-account-key-file="$run/sa.key" \
        --service-account-signing-key-file="$run/sa.key" --service-account-issuer=https://kubernetes.default.svc \
        --token-auth-file="$run/tokens.csv" --authorization-mode=RBAC --service-cluster-ip-range=10.0.0.0/24 \
        --disable-admission-plugins=ServiceAccount --allow-privileged=true
    for _ in $(seq 600); do
        [ "$(curl -sk -H "Authorization: Bearer $token" "https://127.0.0.1:$port/readyz")" != ok ] || break
        sleep 0.2
    done
    begin controllers "$dir/bin/kube-controller-manager" --kubeconfig="$dir/kubeconfig" --bind-address=127.0.0.1 \
        --secure-port=$((port + 1)) --port=0 --leader-elect=false --controllers='*,-ttl,-attachdetach,-persistentvolume-binder' \
        --service-account-private-key-file="$run/sa.key" --node-monitor-grace-period=10s --cert-dir="$run/controllers"
    curl -sk -H "Authorization: Bearer $token" "https://127.0.0.1:$port/version" | grep gitVersion
}

down() {
    for name in controllers apiserver etcd; do
        [ ! -f "$dir/run/$name.pid" ] || kill "$(cat "$dir/run/$name.pid")" 2>/dev/null || true
    done
}

case $verb in build | up | down) $verb ;; *) echo "build, up or down, not $verb" >&2; exit 2 ;; esac
