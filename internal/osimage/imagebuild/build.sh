# Builds /refit/Containerfile with buildah and pushes it to $TARGET. The digest is
# left as the container's last message, after it that of a small image with the list of
# packages, and the seconds that the push took. Exit codes: 64 is the user's fault, 65 says that this pod may not
# make the namespaces that buildah needs, others are tried again.
set -u
export HOME=/build/home XDG_RUNTIME_DIR=/build/xdg TMPDIR=/build/tmp
mkdir -p "$HOME" "$XDG_RUNTIME_DIR" "$TMPDIR" /build/context /build/etc /build/out /build/empty
chmod 777 /build/out
printf '[storage]\ndriver="vfs"\nrunroot="/build/run"\ngraphroot="/build/store"\n' > /build/etc/storage.conf
# Images come from registries over TLS, by digest where the user says so, and are not
# signed for buildah: signatures of bases are not verified here. Nothing else is
# accepted, no file and no daemon; containers-storage is what was built here.
printf '{"default":[{"type":"reject"}],"transports":{"docker":{"":[{"type":"insecureAcceptAnything"}]},"containers-storage":{"":[{"type":"insecureAcceptAnything"}]}}}\n' > /build/etc/policy.json
export CONTAINERS_STORAGE_CONF=/build/etc/storage.conf
secrets=
[ -f /refit/registries.conf ] && export CONTAINERS_REGISTRIES_CONF=/refit/registries.conf
if [ -f /refit/ca.crt ]; then # beside the authorities that the builder's image trusts
  for f in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do [ -f "$f" ] && cat "$f"; done > /build/etc/ca.crt
  cat /refit/ca.crt >> /build/etc/ca.crt
  export SSL_CERT_FILE=/build/etc/ca.crt
  secrets="--secret id=refit-ca,src=/refit/ca.crt"
fi
[ -d /run/refit/context ] && cp -RL /run/refit/context/..data/. /build/context/
b() { buildah --root /build/store --runroot /build/run --storage-driver vfs "$@"; }
tls=; [ -n "${TLS_VERIFY:-}" ] && tls="--tls-verify=$TLS_VERIFY"
pull=; [ -f /run/refit/pull/auth.json ] && pull="--authfile /run/refit/pull/auth.json"
push=; [ -f /run/refit/push/auth.json ] && push="--authfile /run/refit/push/auth.json"
for s in $SECRETS; do for f in /run/refit/secrets/"$s"/*; do [ -f "$f" ] && secrets="$secrets --secret id=$s-${f##*/},src=$f"; done; done
policy="--signature-policy /build/etc/policy.json"

if ! b unshare true > /build/unshare 2>&1 && ! b from --name probe scratch > /build/unshare 2>&1; then
  cat /build/unshare; echo "refit: this pod may not make the namespaces that buildah needs"; exit 65
fi
# shellcheck disable=SC2086
fetch() { b pull -q $tls $pull $policy "$1" || { echo "refit: $2 $1 cannot be pulled"; exit 66; }; }
# The bases come first: a registry that is away is no fault of the Containerfile.
while read -r word rest; do
  case "$word" in FROM | from) ;; *) continue ;; esac
  for image in $rest; do case "$image" in --*) ;; *) break ;; esac; done
  case "$image" in *'$'*) ;; *[/]*) fetch "$image" base ;; esac
done < /refit/Containerfile
if [ -n "${CONTEXT_IMAGE:-}" ]; then
  fetch "$CONTEXT_IMAGE" "build context"
  printf 'FROM %s\n' "$CONTEXT_IMAGE" > /build/etc/context
  # shellcheck disable=SC2086
  b bud -q --isolation chroot --pull-never $policy --output type=local,dest=/build/context -f /build/etc/context /build/empty > /build/log 2>&1 || {
    tail -c 3500 /build/log; echo "refit: the build context $CONTEXT_IMAGE cannot be unpacked: it must be an image whose files are the context"; exit 64
  }
fi
# shellcheck disable=SC2086
b bud --isolation chroot --pull-never --timestamp 0 -v /build/out:/run/refit-out $secrets $policy -f /refit/Containerfile -t result /build/context > /build/log 2>&1
code=$?
tail -c 3500 /build/log
if [ $code != 0 ]; then
  if grep -Eq 'unshare\(CLONE_NEWUSER\)|newuidmap|uid_map' /build/log; then exit 65; fi
  if grep -q 'no space left on device' /build/log; then exit 67; fi
  exit 64
fi
now() { date +%s 2> /dev/null || echo 0; }
at=$(now)
# shellcheck disable=SC2086
b push -q $tls $push $policy --digestfile /build/digest result "docker://$TARGET" || { echo "refit: $TARGET cannot be pushed"; exit 68; }
pushed=$(($(now) - at))
cat /build/digest > /build/said; echo >> /build/said
# The list of packages goes beside the image. Without it the image is as good.
if [ -s /build/out/packages ]; then
  printf 'FROM scratch\nCOPY packages /packages\n' > /build/etc/packages
  # shellcheck disable=SC2086
  b bud -q --isolation chroot --timestamp 0 $policy -f /build/etc/packages -t packages /build/out > /build/log 2>&1 &&
    b push -q $tls $push $policy --digestfile /build/packages packages "docker://$TARGET-packages" &&
    { printf 'packages '; cat /build/packages; echo; } >> /build/said
fi
echo "pushed $pushed" >> /build/said
cat /build/said > /dev/termination-log
