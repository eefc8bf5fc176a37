# Boots the OS image named in /etc/refit/first-image, once. What joins the cluster waits
# for this to end well. DIR is another place for tests.
set -u
DIR=${DIR:-/etc/refit}
image=$(cat "$DIR/first-image") || exit 1
digest=${image#*@}
say() { echo "refit: $*"; }
# What is booted, as the host says: never what is staged, or could be gone back to.
if command -v bootc >/dev/null && bootc status --json 2>/dev/null | grep -q '"booted" *: *{'; then
  booted() { bootc status --json | tr -d '\n' | sed 's/.*"booted" *: *//; s/"rollback" *:.*//'; }
  switch() { bootc switch "$image"; }
elif command -v rpm-ostree >/dev/null; then
  booted() { rpm-ostree status --booted --json; }
  switch() { rpm-ostree rebase "ostree-unverified-registry:$image"; }
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
