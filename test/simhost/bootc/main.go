// Command bootc is a look-alike for tests: it speaks the command line and the JSON of
// bootc over real libostree deployments. What is bootc's own is played after its
// documentation: which words it answers with, kargs.d, what "unchanged" compares.
// What a deployment, staging, /etc or a rollback is, libostree says.
//
// It runs on a host of package simhost, as root, and is never shipped.
package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	repo = "/ostree/repo"
	// locked keeps libostree from finishing what is staged.
	locked = "/run/ostree/staged-deployment-locked"
	// old makes it a bootc from before --download-only.
	old = "/etc/bootc-is-old"
	// soft has it say that what is staged can be entered without the firmware.
	soft = "/etc/bootc-restarts-softly"
	// said records the commands that change something, over restarts.
	said = "/var/lib/bootc-commands"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		code := 1
		if _, ok := err.(usage); ok { //nolint:errorlint // made below
			code = 2
		}
		os.Exit(code)
	}
}

type usage string

func (u usage) Error() string { return string(u) }

func run(ctx context.Context, args []string) error {
	if os.Getenv("container") != "" {
		return fmt.Errorf("this command cannot run in a container")
	}
	if len(args) == 0 {
		return usage("a command is needed")
	}
	if err := note(args); err != nil {
		return err
	}
	switch rest := args[1:]; args[0] {
	case "status":
		return status(rest)
	case "switch":
		return switchTo(ctx, rest)
	case "upgrade":
		return upgrade(ctx, rest)
	case "rollback":
		return rollback()
	}
	return usage("unrecognized subcommand " + args[0])
}

// note records a command.
func note(args []string) error {
	if args[0] == "status" || args[len(args)-1] == "--help" {
		return nil
	}
	f, err := os.OpenFile(said, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, "bootc", strings.Join(args, " "))
	return err
}

func isSoft() bool { _, err := os.Stat(soft); return err == nil }

func isOld() bool { _, err := os.Stat(old); return err == nil }

// wish is what `switch` asks for.
type wish struct {
	image
	lock, help bool
}

func parse(args []string) (w wish, err error) {
	w.transport = "registry"
	args = append(args, "") // an option at the end has no value
	for i := 0; i < len(args)-1; i++ {
		switch a := args[i]; {
		case a == "--help":
			w.help = true
			return w, nil
		case a == "--transport":
			i++
			w.transport = args[i]
		case a == "--download-only" && !isOld():
			w.lock = true
		case !strings.HasPrefix(a, "-"):
			w.name = a
		case a != "--quiet" && a != "--retain" && !strings.HasPrefix(a, "--soft-reboot="):
			return w, usage("unexpected argument " + a)
		}
	}
	if w.name == "" {
		err = usage("<TARGET> is needed")
	}
	return w, err
}

// switchTo stages an image. It compares the reference with that of the spec, which is the
// staged one if there is one, and ignores a queued rollback.
func switchTo(ctx context.Context, args []string) error {
	w, err := parse(args)
	if err != nil {
		return err
	}
	if w.help {
		fmt.Println("Usage: bootc switch [OPTIONS] <TARGET>\n      --quiet\n      --transport <TRANSPORT>\n      --retain")
		if !isOld() {
			fmt.Println("      --download-only\n      --soft-reboot <SOFT_REBOOT>")
		}
		return nil
	}
	h, err := read()
	if err != nil {
		return err
	}
	if s := h.spec(); s != nil && *s == w.image {
		fmt.Println("Image specification is unchanged.")
		return nil
	}
	return h.stage(ctx, w.image, w.lock)
}

func (h *host) letGo() error {
	if h.staged() == nil {
		return fmt.Errorf("no staged deployment")
	}
	return os.Remove(locked)
}

// upgrade looks for a newer image behind the booted reference, or lets go what was
// downloaded.
func upgrade(ctx context.Context, args []string) error {
	if slices.Equal(args, []string{"--help"}) {
		fmt.Println("Usage: bootc upgrade [OPTIONS]\n      --quiet\n      --check\n      --apply")
		if !isOld() {
			fmt.Println("      --soft-reboot <SOFT_REBOOT>\n      --download-only\n      --from-downloaded")
		}
		return nil
	}
	h, err := read()
	if err != nil {
		return err
	}
	if line := strings.Join(args, " "); !isOld() && (line == "--from-downloaded" || line == "--from-downloaded --soft-reboot=auto") {
		return h.letGo()
	}
	check := slices.Equal(args, []string{"--check"})
	if len(args) > 0 && !check {
		return usage("unexpected argument " + args[0])
	}
	return h.newer(ctx, check)
}

// newer resolves the booted reference, and stages its image unless check is set: then it
// only reports it.
func (h *host) newer(ctx context.Context, check bool) error {
	digest, err := resolve(ctx, h.booted().image)
	switch {
	case err != nil:
		return err
	case check:
		return os.WriteFile("/run/bootc-cached-update", []byte(digest), 0o600)
	case digest == h.booted().digest:
		fmt.Println("No update available.")
		return nil
	}
	return h.stage(ctx, h.booted().image, false)
}

// rollback drops what is staged, and toggles which of the two others is first.
func rollback() error {
	h, err := read()
	if err != nil {
		return err
	}
	to := h.rollback()
	switch {
	case to == nil:
		return fmt.Errorf("No rollback available") //nolint:staticcheck // as bootc has it
	case to.digest == "":
		return fmt.Errorf("Rolling back: Rollback is not container image based") //nolint:staticcheck // as bootc has it
	}
	if h.staged() != nil {
		if _, err := ostree("admin", "undeploy", "0"); err != nil {
			return err
		}
		if err := os.Remove(locked); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	switch {
	case h.queued():
		to = h.booted()
		fmt.Println("notice: Reverting queued rollback state")
	default:
		fmt.Println("Next boot: rollback deployment")
	}
	return first(to.id())
}

// first gives a deployment's entry the highest version: what libostree does when the
// order of its list is changed, in one file that is replaced in one go.
func first(id string) error {
	files, err := filepath.Glob("/boot/loader/entries/*.conf")
	if err != nil {
		return err
	}
	highest, mine := 0, ""
	for _, f := range files {
		e, err := entryOf(f)
		if err != nil {
			return err
		}
		highest = max(highest, e.version)
		if e.deployment == id {
			mine = f
		}
	}
	if mine == "" {
		return fmt.Errorf("deployment %s has no entry", id)
	}
	b, err := os.ReadFile(mine)
	if err != nil {
		return err
	}
	var out []string
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "version ") {
			l = fmt.Sprintf("version %d", highest+1)
		}
		out = append(out, l)
	}
	tmp := mine + ".tmp"
	if err := os.WriteFile(tmp, []byte(strings.Join(out, "\n")), fs.FileMode(0o644)); err != nil {
		return err
	}
	return os.Rename(tmp, mine)
}
