# Builds /refit/Containerfile with buildah and pushes it to $TARGET. The digest is
# left as the container's last message. Exit codes: 64 is the user's fault, 65 says
# that this pod may not make the namespaces that buildah needs, others are tried again.
set -u
export HOME=/build/home XDG_RUNTIME_DIR=/build/xdg TMPDIR=/build/tmp
mkdir -p "$HOME" "$XDG_RUNTIME_DIR" "$TMPDIR" /build/context /build/etc
printf '[storage]\ndriver="vfs"\nrunroot="/build/run"\ngraphroot="/build/store"\n' > /build/etc/storage.conf
printf '{"default":[{"type":"insecureAcceptAnything"}]}\n' > /build/etc/policy.json
export CONTAINERS_STORAGE_CONF=/build/etc/storage.conf
[ -f /run/refit/mirrors/registries.conf ] && export CONTAINERS_REGISTRIES_CONF=/run/refit/mirrors/registries.conf
[ -f /run/refit/ca/ca.crt ] && export SSL_CERT_FILE=/run/refit/ca/ca.crt
[ -d /run/refit/context ] && cp -L /run/refit/context/* /build/context/
b() { buildah --root /build/store --runroot /build/run --storage-driver vfs "$@"; }
tls="--tls-verify=${TLS_VERIFY:-true}"
pull=; [ -f /run/refit/pull/auth.json ] && pull="--authfile /run/refit/pull/auth.json"
push=; [ -f /run/refit/push/auth.json ] && push="--authfile /run/refit/push/auth.json"
secrets=
for s in $SECRETS; do for f in /run/refit/secrets/"$s"/*; do [ -f "$f" ] && secrets="$secrets --secret id=$s-${f##*/},src=$f"; done; done

if ! b unshare true > /build/unshare 2>&1 && ! b from --name probe scratch > /build/unshare 2>&1; then
  cat /build/unshare; echo "refit: this pod may not make the namespaces that buildah needs"; exit 65
fi
# The bases come first: a registry that is away is no fault of the Containerfile.
while read -r word image rest; do
  case "$word" in FROM | from) ;; *) continue ;; esac
  case "$image" in *[/]*) ;; *) continue ;; esac
  # shellcheck disable=SC2086
  b pull -q $tls $pull --signature-policy /build/etc/policy.json "$image" || { echo "refit: base $image cannot be pulled"; exit 66; }
done < /refit/Containerfile
# shellcheck disable=SC2086
b bud --isolation chroot --pull-never --timestamp 0 $secrets --signature-policy /build/etc/policy.json -f /refit/Containerfile -t result /build/context > /build/log 2>&1
code=$?
tail -c 3500 /build/log
if [ $code != 0 ]; then
  if grep -Eq 'unshare\(CLONE_NEWUSER\)|newuidmap|uid_map' /build/log; then exit 65; fi
  if grep -q 'no space left on device' /build/log; then exit 67; fi
  exit 64
fi
# shellcheck disable=SC2086
b push -q $tls $push --signature-policy /build/etc/policy.json --digestfile /build/digest result "docker://$TARGET" || { echo "refit: $TARGET cannot be pushed"; exit 68; }
cat /build/digest > /dev/termination-log
