#!/bin/sh
# Builds the API server and the controller manager of Kubernetes once, out of Debian alone, and
# keeps them outside the tree: in $WEFT_KUBERNETES, or else ~/.cache/weft/kubernetes. About ten CPU
# minutes (an hour on two busy cores) and 4 GB of disk for a while. Needs the rights to install
# packages, unless they are there.
set -eu
keep=${WEFT_KUBERNETES:-$HOME/.cache/weft/kubernetes}
if [ -x "$keep/kube-apiserver" ] && [ -x "$keep/kube-controller-manager" ] && [ -e "$keep/custom-resources" ]; then
    echo "already there: $keep"
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
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
echo "deb-src http://deb.debian.org/debian $release main" >sources.list
mkdir lists
private="-o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$work/lists"
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
make WHAT=cmd/kube-apiserver
make WHAT=cmd/kube-controller-manager
mkdir -p "$keep"
cp _output/bin/kube-apiserver _output/bin/kube-controller-manager "$keep/"
touch "$keep/custom-resources" # this server can read them
echo "built: $keep"
