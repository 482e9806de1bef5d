#!/bin/sh
# Builds the API server, the controller manager and the scheduler of Kubernetes once, and keeps them
# outside the tree: in $WEFT_KUBERNETES, or else ~/.cache/weft/kubernetes. About eight CPU minutes
# and 4 GB of disk for a while.
#
#   sh build_kubernetes.sh                       1.20, out of Debian alone; installs what it needs
#   sh build_kubernetes.sh CHECKOUT 1.35.5       a newer one, with the `go` that it wants in PATH
set -eu
keep=${WEFT_KUBERNETES:-$HOME/.cache/weft/kubernetes}
servers="kube-apiserver kube-controller-manager kube-scheduler"
missing=""
for server in $servers; do
    [ -x "$keep/$server" ] || missing="$missing $server"
done
if [ -z "$missing" ] && [ -e "$keep/custom-resources" ]; then
    echo "already there: $keep"
    exit 0
fi
if [ $# -eq 2 ]; then
    mkdir -p "$keep"
    cd "$1"
    set -- "k8s.io/component-base/version" "$2"
    named="-X $1.gitVersion=v$2 -X $1.gitMajor=${2%%.*} -X $1.gitMinor=$(echo "$2" | cut -d. -f2)"
    for server in $servers; do
        CGO_ENABLED=0 GOTOOLCHAIN=local go build -mod=vendor -trimpath -ldflags "-s -w $named" \
            -o "$keep/$server" "./cmd/$server"
    done
    touch "$keep/custom-resources"
    echo "built: $keep"
    exit 0
fi
need=""
for pair in go:golang-go rsync:rsync make:make dpkg-source:dpkg-dev etcd:etcd-server \
    kubectl:kubernetes-client openssl:openssl; do
    command -v "${pair%%:*}" >/dev/null || [ -x "/usr/lib/go/bin/${pair%%:*}" ] || need="$need ${pair#*:}"
done
# shellcheck disable=SC2086 # words on purpose
[ -z "$need" ] || apt-get install -y --no-install-recommends $need

work=$(mktemp -d "${TMPDIR:-/tmp}/weft-kubernetes.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
# Sources of packages come from where this machine has its packages; its own lists are left alone.
mkdir parts lists
cp /etc/apt/sources.list.d/*.sources parts/ 2>/dev/null || true
sed -i 's/^Types:.*/Types: deb-src/' parts/*.sources 2>/dev/null || true
cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | sed -n 's/^deb /deb-src /p' >sources.list
private="-o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=$work/parts -o Dir::State::lists=$work/lists"
# shellcheck disable=SC2086
apt-get $private -o APT::Sandbox::User=root update -qq
# shellcheck disable=SC2086
apt-get $private source --download-only kubernetes
mkdir src
tar xzf kubernetes_*.orig.tar.gz -C src --strip-components=1
cd src
mkdir -p .go/src/k8s.io home
ln -sfn ../../.. .go/src/k8s.io/kubernetes  # the build wants to be inside a GOPATH
export GOPATH="$PWD/.go" PATH="/usr/lib/go/bin:$PATH" CGO_ENABLED=0 HOME="$PWD/home"
export KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20 KUBE_GIT_COMMIT=x
export KUBE_GIT_TREE_STATE=archive
export GOFLAGS=-tags=providerless  # what it knows of clouds is half of the work, and none is here
# Its JSON library calls Go's own map iteration as it was before Go 1.18: with a later Go the server
# dies when it reads the first custom resource. This is what later versions of the library do.
library=vendor/github.com/modern-go/reflect2
sed -i -e 's|// rest fields are ignored|pointers [6]unsafe.Pointer; numbers [4]uintptr|' \
    -e 's|^func mapiterinit(.*|func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)|' \
    "$library/unsafe_link.go"
sed -i -e 's|hiter: *mapiterinit(.*|hiter: it,|' \
    -e 's|^func (type2 \*UnsafeMapType) UnsafeIterate(.*|&\n\tit := new(hiter)\n\tmapiterinit(type2.rtype, *(*unsafe.Pointer)(obj), it)|' \
    "$library/unsafe_map.go"
mkdir -p "$keep"
for server in $servers; do
    make WHAT="cmd/$server"
    cp "_output/bin/$server" "$keep/"
done
touch "$keep/custom-resources" # this server can read them
echo "built: $keep"
