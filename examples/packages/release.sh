#!/usr/bin/env bash
# release.sh DIR VERSION [ARCH...] builds what is given away, for amd64 and arm64:
# static programs, which need Linux 5.10 or newer and nothing else, as an
# archive, .deb and .rpm, with manual pages, completions, the unit of
# rsswardend and the licences of all that is linked, and as a wheel for Python;
# the source of the SPANK plugin, to be built as .deb or .rpm; and SHA256SUMS.
#
# The same source, version and compilers make the same bytes, wherever and whenever:
# paths are trimmed, times are those of the commit, or SOURCE_DATE_EPOCH's.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC GOFLAGS= GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT=
# The warnings are about LMDB's code.
export CGO_CFLAGS='-O2 -w'
unset CGO_CPPFLAGS CGO_LDFLAGS GOOS GOARCH DEB_BUILD_OPTIONS

out=$(realpath -m "$1") version=$2
shift 2
[ $# -gt 0 ] || set -- amd64 arm64
cd "$(dirname "$0")/../.."
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH=$epoch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A version of Debian's and RPM's begins with a digit and has no hyphen, one of Python's has
# what follows the first hyphen behind a "+"; what has no tag yet is older than what will
# have one.
case $version in
v[0-9]*.* | [0-9]*.*)
	debian=${version#v} python=${version#v}
	[[ $python != *-* ]] || python=${python%%-*}+${python#*-}
	;;
*)
	day=$(date -d "@$epoch" +%Y%m%d)
	debian=0~$day+$version python=0.dev$day+$version
	;;
esac
debian=${debian//-/+} python=${python//-/.}
name=rsswarden-${version#v}

compiler() { # compiler ARCH: the C compiler for it
	if [ "$1" = "$(go env GOHOSTARCH)" ]; then
		echo cc
	else
		case $1 in
		amd64) echo x86_64-linux-gnu-gcc ;;
		arm64) echo aarch64-linux-gnu-gcc ;;
		*)
			echo "error: nothing is built for $1" >&2
			exit 1
			;;
		esac
	fi
}

build() { # build ARCH DIR
	local flags=(-trimpath -buildvcs=false)
	# LMDB, which records are kept in, is written in C, and so is a part of rsswarden run.
	# Names of users come from /etc/passwd: what else a site has cannot be in a static program.
	GOARCH=$1 CGO_ENABLED=1 CC=$(compiler "$1") go build "${flags[@]}" -tags urfave_cli_no_docs,netgo,osusergo \
		-ldflags "-s -w -buildid= -linkmode=external -extldflags=-static -X main.version=$version" -o "$2/rsswarden" ./cmd/rsswarden
	GOARCH=$1 CGO_ENABLED=0 go build "${flags[@]}" -tags urfave_cli_no_docs \
		-ldflags "-s -w -buildid= -X main.version=$version" -o "$2/rsswardend" ./cmd/rsswardend
}

# licences tells under which terms what is linked may be given on.
licences() {
	local path dir file
	cat <<-END
		rsswarden, https://github.com/rsswarden/rsswarden

		The programs are static: they hold what is listed below, each under its own
		licence, which follows. Everything is built from public source by
		examples/packages/release.sh, whose modules go.sum names by their hashes.
	END
	section() {
		printf '\n%s\n%s\n\n' "$(printf '=%.0s' {1..78})" "$1"
		cat "$2"
	}
	section "rsswarden" LICENSE
	section "Go, its standard library and runtime: https://go.dev" "$(go env GOROOT)/LICENSE"
	while read -r path dir; do
		for file in "$dir"/LICEN[CS]E* "$dir"/COPYING* "$dir"/NOTICE*; do
			[ ! -f "$file" ] || section "$path: ${file##*/}" "$file"
		done
	done < <(GOARCH=amd64 CGO_ENABLED=1 go list -deps -tags urfave_cli_no_docs -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/rsswarden ./cmd/rsswardend | sort -u)
	# Licence and source of the C library are those of the system that built it.
	if [ -f /usr/share/doc/libc6/copyright ]; then
		section "In rsswarden alone: the GNU C Library, which may be replaced by building again" /usr/share/doc/libc6/copyright
	fi
}

# The texts are the same for all: they come from programs that run here.
here=$work/$(go env GOHOSTARCH)
mkdir -p "$here" "$work/texts"
build "$(go env GOHOSTARCH)" "$here"
"$here/rsswarden" man >"$work/texts/rsswarden.1"
"$here/rsswardend" man >"$work/texts/rsswardend.8"
for shell in bash zsh fish; do
	"$here/rsswarden" completion $shell >"$work/texts/rsswarden.$shell"
done
licences >"$work/texts/copyright"
go build -trimpath -o "$work/pack" ./examples/packages/pack

# tree ARCH ROOT PREFIX BIN: where the files of the package are, below ROOT/PREFIX.
tree() {
	local bin=$work/$1 to=$2$3
	if [ ! -d "$bin" ]; then
		mkdir "$bin"
		build "$1" "$bin"
	fi
	install -D -m 755 -t "$to/bin" "$bin/rsswarden" "$bin/rsswardend"
	ln -s rsswarden "$to/bin/rsswarden-task"
	install -D -m 644 -t "$to/share/man/man1" "$work/texts/rsswarden.1"
	install -D -m 644 -t "$to/share/man/man8" "$work/texts/rsswardend.8"
	gzip -9n "$to/share/man/man1/rsswarden.1" "$to/share/man/man8/rsswardend.8"
	install -D -m 644 "$work/texts/rsswarden.bash" "$to/share/bash-completion/completions/rsswarden"
	install -D -m 644 "$work/texts/rsswarden.zsh" "$to/share/zsh/vendor-completions/_rsswarden"
	install -D -m 644 -t "$to/share/fish/vendor_completions.d" "$work/texts/rsswarden.fish"
	install -D -m 644 -t "$to/share/doc/rsswarden" "$work/texts/copyright" README.md SECURITY.md
	# Documents, and the examples that they tell to copy, where their links look for them.
	local file mode
	while read -r file; do
		mode=644
		[ ! -x "$file" ] || mode=755
		install -D -m $mode "$file" "$to/share/doc/rsswarden/$file"
	done < <(find docs examples/{integrations,pools,prometheus,sbatch,site,rsswarden.toml} -type f ! -name '*.go' ! -name '*.pyc' ! -path '*/testdata/*')
	install -D -m 644 -t "$to/share/doc/rsswarden/slurm/plugin" slurm/plugin/rsswarden_spank.c
	install -D -m 644 CHANGELOG.md "$to/share/doc/rsswarden/changelog"
	gzip -9n "$to/share/doc/rsswarden/changelog"
	mkdir -p "$to/lib/systemd/system"
	# The lines on how to install it by hand are not for a package.
	sed -e "s|/usr/local/bin/|${3:-/usr/local}/bin/|" -e '/^#     /d' -e 's/^# rsswardend, for every node that runs slurmd:$/# rsswardend, for every node that runs slurmd: systemctl enable --now rsswardend/' \
		examples/prometheus/rsswardend.service >"$to/lib/systemd/system/rsswardend.service"
	find "$2" -exec touch -h -d "@$epoch" {} +
}

mkdir -p "$out"
files=()
for arch in "$@"; do
	# Below a directory of one's own: no root is needed, and modulefile fits.
	root=$work/archive-$arch/$name-linux-$arch
	tree "$arch" "$root" ""
	tar -C "$work/archive-$arch" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -c "$name-linux-$arch" |
		gzip -9n >"$out/$name-linux-$arch.tar.gz"

	root=$work/deb-$arch
	tree "$arch" "$root" /usr
	mkdir "$root/DEBIAN"
	cp examples/packages/debian/{prerm,postrm} "$root/DEBIAN"
	chmod 755 "$root"/DEBIAN/*
	sed -e "s/@VERSION@/$debian/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f1)/" \
		examples/packages/debian/control >"$root/DEBIAN/control"
	(cd "$root" && find usr -type f | sort | xargs md5sum) >"$root/DEBIAN/md5sums"
	dpkg-deb --root-owner-group -Zgzip -z9 --build "$root" "$out/rsswarden_${debian}_$arch.deb" >/dev/null
	files+=("$name-linux-$arch.tar.gz" "rsswarden_${debian}_$arch.deb")

	case $arch in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac
	rm -r "$root/DEBIAN"
	mv "$root/usr/share/zsh/vendor-completions" "$root/usr/share/zsh/site-functions"
	file=rsswarden-$debian-1.$machine.rpm
	"$work/pack" rpm -control examples/packages/debian/control -version "$debian" -arch "$arch" -root "$root" -scripts examples/packages/debian >"$out/$file"
	files+=("$file")

	# A wheel holds no links: rsswarden-task is a program there, which does what the link does.
	root=$work/wheel-$arch scripts=$work/wheel-$arch/rsswarden-$python.data/scripts
	install -D -m 755 -t "$scripts" "$work/$arch/rsswarden" "$work/$arch/rsswardend"
	echo 'void hold_task(int, char **, char **); int main(int c, char **v, char **e) { hold_task(c, v, e); return 2; }' |
		$(compiler "$arch") -O2 -static -s -Wl,--build-id=none -o "$scripts/rsswarden-task" -x c - supervisor/hold/task.c
	install -D -m 644 -t "$root/rsswarden" examples/packages/wheel/rsswarden/*.py
	install -D -m 644 -t "$root/rsswarden-$python.dist-info" "$work/texts/copyright"
	file=rsswarden-$python-py3-none-manylinux_2_17_$machine.manylinux2014_$machine.whl
	"$work/pack" wheel -control examples/packages/debian/control -version "$python" -arch "$arch" -root "$root" >"$out/$file"
	files+=("$file")
done

# The plugin, for who builds it for the Slurm of a site: `rpmbuild -ta` and dpkg-buildpackage
# take the archive, `rpmbuild --rebuild` the source RPM.
plugin=rsswarden-slurm-plugin-$debian root=$work/plugin
mkdir -p "$root/$plugin" "$work/srpm"
cp -r examples/packages/slurm-plugin/. slurm/plugin/rsswarden_spank.c LICENSE "$root/$plugin"
cp LICENSE "$root/$plugin/debian/copyright"
sed -i -e "s/@VERSION@/$debian/" -e "s/@DATE@/$(date -Rd "@$epoch")/" "$root/$plugin"/{*.spec,debian/changelog}
find "$root" -type d -exec chmod 755 {} + -o -name rules -exec chmod 755 {} + -o -exec chmod 644 {} +
tar -C "$root" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -c "$plugin" | gzip -9n >"$out/$plugin.tar.gz"
cp "$out/$plugin.tar.gz" "$root/$plugin"/*.spec "$work/srpm"
"$work/pack" srpm -version "$debian" -control examples/packages/slurm-plugin/debian/control -root "$work/srpm" >"$out/$plugin-1.src.rpm"
files+=("$plugin.tar.gz" "$plugin-1.src.rpm")
(cd "$out" && sha256sum "${files[@]}" | tee SHA256SUMS)
