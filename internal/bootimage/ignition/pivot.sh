# Boots the OS image named in /etc/refit/first-image, once. What joins the cluster waits
# for this to end well. DIR is another place for tests.
set -u
DIR=${DIR:-/etc/refit}
image=$(cat "$DIR/first-image") || exit 1
digest=${image#*@}
say() { echo "refit: $*"; }
# json prints the texts of a JSON document with their paths: .status.booted.image=... A text in
# another part of the document does not count: bootc names next to what is booted what it could be
# updated to.
json() {
  awk '
  { text = text $0 "\n" }
  END {
    n = length(text)
    for (i = 1; i <= n; i++) {
      c = substr(text, i, 1)
      if (c == "{" || c == "[") { depth++; list[depth] = c == "["; name[depth] = list[depth] ? 0 : ""; key[depth] = !list[depth] }
      else if (c == "}" || c == "]") depth--
      else if (c == ":") key[depth] = 0
      else if (c == ",") { if (list[depth]) name[depth]++; else key[depth] = 1 }
      else if (c == "\"") {
        s = ""
        for (i++; i <= n && (c = substr(text, i, 1)) != "\""; i++) {
          if (c == "\\") c = substr(text, ++i, 1)
          s = s c
        }
        if (key[depth]) { name[depth] = s; continue }
        path = ""
        for (d = 1; d <= depth; d++) path = path "." name[d]
        print path "=" s
      }
    }
  }'
}
# What is booted, as the host says: never what is staged, or could be gone back to.
if command -v bootc >/dev/null && bootc status --json 2>/dev/null | json | grep -q '^\.status\.booted\.'; then
  booted() { bootc status --json | json | grep -E '^\.status\.booted\.image\.(imageDigest|image\.image)='; }
  switch() { bootc switch "$image"; }
elif command -v rpm-ostree >/dev/null; then
  booted() { rpm-ostree status --booted --json | json | grep '^\.deployments\.0\.container-image-reference'; }
  # Where a program such as Zincati has registered for updates, rpm-ostree refuses others.
  bypass=
  if rpm-ostree rebase --help 2>/dev/null | grep -q -e --bypass-driver; then bypass=--bypass-driver; fi
  switch() { rpm-ostree rebase $bypass "ostree-unverified-registry:$image"; }
else
  say "this host cannot boot $image: it has neither bootc nor rpm-ostree. It goes on with its own OS"
  rm -f "$DIR/first-image"
  exit 0
fi
case $(booted) in
*"$digest"*)
  say "$image is booted"
  rm -f "$DIR/first-image" "$DIR/first-image.tried"
  exit 0
  ;;
esac
if [ -e "$DIR/first-image.tried" ]; then
  say "the machine was restarted into $image and came back on another OS; it does not join. journalctl -b -1 -u ostree-finalize-staged.service says more; to try again: rm $DIR/first-image.tried"
  exit 1
fi
for pause in 10 20 40 60 60 60 0; do
  if switch; then
    : > "$DIR/first-image.tried"
    sync
    say "restarting into $image"
    systemctl reboot
    sleep 600 # what joins must not start while the machine goes down
    exit 1
  fi
  say "$image could not be fetched, and is tried again"
  sleep "$pause"
done
say "$image could not be fetched; the machine does not join. It is tried again at the next start"
exit 1
