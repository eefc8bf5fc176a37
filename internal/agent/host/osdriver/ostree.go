package osdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/failpoint"
)

// OpenTree reads an image as the tree of its files, as a tar.
type OpenTree func(ctx context.Context, s Source) (io.ReadCloser, error)

// OstreeDriver is a host with libostree alone.
type OstreeDriver struct {
	host Host
	open OpenTree
}

// NewOstree makes the driver.
func NewOstree(h Host, open OpenTree) *OstreeDriver { return &OstreeDriver{h, open} }

// Name is ostree.
func (d *OstreeDriver) Name() string { return OSTree }

func (d *OstreeDriver) run(ctx context.Context, argv ...string) (string, error) {
	out, err := d.host.Runner.Run(ctx, nil, append([]string{"ostree"}, argv...)...)
	return strings.TrimRight(string(out), "\n"), err // the first line may be indented
}

// Status reads the host.
func (d *OstreeDriver) Status(ctx context.Context) (Status, error) {
	s, _, err := d.readStatus(ctx)
	if err != nil {
		return s, err
	}
	s.Drift = append(s.Drift, d.host.EtcDrift(ctx)...)
	return s, nil
}

// readStatus is Status, with libostree's own list in the order in which it boots.
func (d *OstreeDriver) readStatus(ctx context.Context) (Status, []ostreeEntry, error) {
	out, err := d.run(ctx, "admin", "status")
	if err != nil {
		return Status{}, nil, err
	}
	list := parse(out)
	options, err := bootOptions(d.host.Root)
	if err != nil {
		return Status{}, nil, err
	}
	s := Status{Driver: OSTree, Capabilities: []string{CanDownloadOnly, CanKargsVerb, CanKargsImage}}
	for i := range list {
		e := &list[i]
		e.d = &Deployment{ID: e.id(), Pinned: e.pinned, Kargs: options[e.id()]}
		if err := d.describe(ctx, e.d, e.checksum); err != nil {
			return Status{}, nil, err
		}
		e.d.Locked = e.locked || e.staged && d.host.locked()
		place(&s, e)
	}
	if s.Booted == nil {
		return Status{}, nil, errors.New("libostree does not say which deployment is booted; `ostree admin status` on the node shows what it sees")
	}
	s.Next = list[0].d
	s.RollbackQueued = !s.NextIsBooted() && !list[0].staged
	s.Running, err = d.host.Running()
	s.Drift = drift(list)
	return s, list, err
}

// Where a commit says which image it is: ours, and that of the tools of bootc.
var digestKeys = []string{"refit.digest", "ostree.manifest-digest"}

const imageKey = "refit.image"

// describe says which image a deployment is from, if the commit says it.
func (d *OstreeDriver) describe(ctx context.Context, out *Deployment, commit string) error {
	for _, key := range digestKeys {
		v, err := d.metadata(ctx, commit, key)
		if err != nil {
			return err
		}
		if v != "" {
			out.Digest = v
			out.Image, err = d.metadata(ctx, commit, imageKey)
			return err
		}
	}
	return nil
}

// metadata is one text of a commit, "" if it has none of that name.
func (d *OstreeDriver) metadata(ctx context.Context, commit, key string) (string, error) {
	out, err := d.run(ctx, "show", "--repo="+ostreeRepo, "--print-metadata-key="+key, commit)
	var tool *ToolError
	if errors.As(err, &tool) && strings.Contains(tool.Said, "No such metadata key") {
		return "", nil
	}
	return strings.Trim(out, "'"), err
}

// ostreeRepo of the host's commits.
const ostreeRepo = "/ostree/repo"

// refOf is the name under which an image is kept in the repository.
func refOf(digest string) string { return "refit/" + strings.TrimPrefix(digest, "sha256:") }

// Stage imports the image, if the host does not have it, and stages a deployment of it with its
// kernel arguments. It does both in one step, because a second staging loses the arguments of the
// first.
func (d *OstreeDriver) Stage(ctx context.Context, t Target) error {
	s, list, err := d.readStatus(ctx)
	if err != nil {
		return err
	}
	if err := d.importImage(ctx, t); err != nil {
		return err
	}
	failpoint.Here(failpoint.OSImported)
	args, err := d.kargs(ctx, s.Booted.Kargs, refOf(t.Digest))
	if err != nil {
		return err
	}
	if !s.NextIsBooted() {
		if err := d.Discard(ctx); err != nil {
			return err
		}
	}
	failpoint.Here(failpoint.OSDiscarded)
	if err := d.deploy(ctx, booted(list).osname, refOf(t.Digest), Change(args, t.Drop, t.Kargs)); err != nil {
		return err
	}
	if err := os.WriteFile(d.host.lockFile(), nil, 0o600); err != nil {
		return fmt.Errorf("what is staged could not be locked: %w", err)
	}
	return d.forget(ctx, t.Digest)
}

func booted(list []ostreeEntry) *ostreeEntry {
	return &list[slices.IndexFunc(list, func(e ostreeEntry) bool { return e.booted })]
}

// deploy stages a commit; nothing but the given arguments is taken over.
func (d *OstreeDriver) deploy(ctx context.Context, osname, rev string, kargs []string) error {
	argv := []string{"admin", "deploy", "--stage", "--os=" + osname, "--karg-none"}
	for _, a := range kargs {
		argv = append(argv, "--karg-append="+a)
	}
	_, err := d.run(ctx, append(argv, rev)...)
	return err
}

// importImage makes a commit of an image. A commit is there wholly or not at all.
func (d *OstreeDriver) importImage(ctx context.Context, t Target) error {
	if _, err := d.run(ctx, "rev-parse", "--repo="+ostreeRepo, refOf(t.Digest)); err == nil {
		return nil
	}
	tree, err := d.open(ctx, t.Source)
	if err != nil {
		return err
	}
	defer tree.Close()
	_, err = d.host.Runner.Run(ctx, tree, "ostree", "commit", "--repo="+ostreeRepo, "--branch="+refOf(t.Digest), "--parent=none", "--bootable",
		"--subject="+t.Image, "--tree=tar=-", "--tar-autocreate-parents",
		"--add-metadata-string="+digestKeys[0]+"="+t.Digest, "--add-metadata-string="+imageKey+"="+t.Image)
	return err
}

// forget lets go the images that no deployment is from; what they had alone goes
// when libostree tidies up, as it does with every deployment.
func (d *OstreeDriver) forget(ctx context.Context, digest string) error {
	_, list, err := d.readStatus(ctx)
	if err != nil {
		return err
	}
	out, err := d.run(ctx, "refs", "--repo="+ostreeRepo, "--list", "refit")
	if err != nil {
		return err
	}
	for _, ref := range strings.Fields(out) {
		used := ref == refOf(digest) || slices.ContainsFunc(list, func(e ostreeEntry) bool { return ref == refOf(e.d.Digest) })
		if used {
			continue
		}
		if _, err := d.run(ctx, "refs", "--repo="+ostreeRepo, "--delete", ref); err != nil {
			return err
		}
	}
	return nil
}

// Discard drops what is in front of the booted deployment. Of an older deployment it changes the
// order only, where libostree can (since 2023.8): the node may need it.
func (d *OstreeDriver) Discard(ctx context.Context) error {
	for range 4 {
		s, list, err := d.readStatus(ctx)
		if err != nil || s.NextIsBooted() {
			return err
		}
		argv := []string{"admin", "undeploy", "0"}
		if s.RollbackQueued && d.canSetDefault(ctx) {
			argv = []string{"admin", "set-default", strconv.Itoa(slices.IndexFunc(list, func(e ostreeEntry) bool { return e.booted }))}
		}
		if _, err := d.run(ctx, argv...); err != nil {
			return err
		}
	}
	return errors.New("what is staged could not be dropped; `ostree admin status` on the node shows it")
}

// canSetDefault reports whether libostree can change the order of deployments.
func (d *OstreeDriver) canSetDefault(ctx context.Context) bool {
	help, err := d.run(ctx, "admin", "--help")
	return err == nil && strings.Contains(help, "set-default")
}

// Rollback makes the earlier deployment the next. Where libostree cannot change the
// order (before 2023.8), its commit is deployed once more, with its arguments: so
// /etc keeps what was changed since.
func (d *OstreeDriver) Rollback(ctx context.Context) error {
	if err := d.Discard(ctx); err != nil {
		return err
	}
	s, list, err := d.readStatus(ctx)
	switch {
	case err != nil:
		return err
	case s.Rollback == nil:
		return ErrNoRollback
	}
	i := slices.IndexFunc(list, func(e ostreeEntry) bool { return e.d == s.Rollback })
	if d.canSetDefault(ctx) {
		_, err = d.run(ctx, "admin", "set-default", strconv.Itoa(i))
		return err
	}
	if s.Rollback.Kargs == nil {
		return fmt.Errorf("the arguments of deployment %s are not in the boot loader's entries", s.Rollback.ID)
	}
	return d.deploy(ctx, list[i].osname, list[i].checksum, s.Rollback.Kargs)
}

// Activate lets go what is staged: libostree finishes it at shutdown.
func (d *OstreeDriver) Activate(context.Context, Target) (Activation, error) {
	if err := os.Remove(d.host.lockFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("what is staged could not be let go: %w", err)
	}
	return ByReboot, nil
}

// Failure says why the last shutdown did not finish what was staged.
func (d *OstreeDriver) Failure(ctx context.Context) string { return d.host.FinaliseFailure(ctx) }
