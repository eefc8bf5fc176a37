package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/fsutil"
)

// carriedBinary is where the agent is on hosts whose image does not have it: every image leaves /var
// as it is.
const carriedBinary = "/var/opt/refit/bin/refit-agent"

// carriedNote begins the files that Carry writes. libostree takes a file of /etc for the image's own
// if nothing in it was changed, and drops it with the image.
const carriedNote = "# Carried by refit: an OS image without it was booted.\n"

// Carrier brings the agent into the next boot if the OS image does not have it. The zero value of
// Root and Program is this machine and the program that runs.
type Carrier struct {
	// Root is where the host's files are.
	Root string
	// Program is the agent's own.
	Program string
	// Runner runs the copy once: it may be where nothing can be run.
	Runner osdriver.Runner
}

// Carry verifies that the agent starts in a deployment that boots next. If a part of it is missing,
// the running program is copied to /var, and units that start it are written to /etc. It is ErrNoAgent
// if that cannot be. A deployment that is not kept as files is not checked.
func (c Carrier) Carry(ctx context.Context, d *osdriver.Deployment) error {
	dir := osdriver.DeploymentDir(c.Root, d)
	if dir == "" {
		return nil
	}
	next := newNextBoot(c.Root, dir)
	why := next.withoutAgent()
	switch {
	case why == "":
		return nil
	case next.transient:
		return fmt.Errorf("%w: the image has %s, and its /etc is transient, so that units of the node do not outlive the boot", osdriver.ErrNoAgent, why)
	}
	if err := c.put(ctx); err != nil {
		return fmt.Errorf("the image has %s; the agent that runs could not be kept: %w", why, err)
	}
	if why = next.withoutAgent(); why != "" {
		return fmt.Errorf("%w: after it was copied to %s the next boot has %s", osdriver.ErrNoAgent, carriedBinary, why)
	}
	return nil
}

// put copies the program, sees that it can run, and writes its units and configuration.
func (c Carrier) put(ctx context.Context) error {
	p := Places{Root: c.Root}
	if to, err := os.Readlink(p.agentUnit()); err == nil && to == os.DevNull {
		return fmt.Errorf("%w: %s is masked on this node", osdriver.ErrNoAgent, Unit)
	}
	if err := c.putProgram(ctx); err != nil {
		return err
	}
	var r Report
	for _, u := range p.unitsOf(carriedBinary) {
		if err := putFile(u.path, []byte(carriedNote+u.text), 0o644, &r); err != nil {
			return err
		}
	}
	if err := p.noteConfig(&r); err != nil {
		return err
	}
	for _, unit := range enabled() {
		if err := p.enable(unit); err != nil {
			return err
		}
	}
	return nil
}

// putProgram copies the program, and starts the copy once.
func (c Carrier) putProgram(ctx context.Context) error {
	self := c.Program
	if self == "" {
		var err error
		if self, err = os.Executable(); err != nil {
			return fmt.Errorf("the agent's own program: %w", err)
		}
	}
	if _, err := putProgram(self, (Places{Root: c.Root}).at(carriedBinary), c.Root); err != nil {
		return err
	}
	if _, err := c.Runner.Run(ctx, nil, carriedBinary, "version"); err != nil {
		return fmt.Errorf("%w: the copy of it cannot run: %w", osdriver.ErrNoAgent, err)
	}
	return nil
}

// noteConfig makes the agent's configuration a file that was changed on the node.
func (p Places) noteConfig(r *Report) error {
	text, err := os.ReadFile(p.config())
	if errors.Is(err, fs.ErrNotExist) || bytes.HasPrefix(text, []byte(carriedNote)) {
		return nil
	}
	if err != nil {
		return err
	}
	return putFile(p.config(), append([]byte(carriedNote), text...), 0o644, r)
}

// link is what makes systemd start a unit.
func (p Places) link(unit string) string {
	return p.at("/etc/systemd/system/multi-user.target.wants/" + unit)
}

// enable does what systemctl does, without a reload of what runs.
func (p Places) enable(unit string) error {
	link, to := p.link(unit), "/etc/systemd/system/"+unit
	if have, err := os.Readlink(link); err == nil && have == to {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return fmt.Errorf("enable %s: %w", unit, err)
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("enable %s: %w", unit, err)
	}
	if err := os.Symlink(to, link); err != nil {
		return fmt.Errorf("enable %s: %w", unit, err)
	}
	if err := fsutil.LabelAs(p.Root, link, p.inside(link)); err != nil {
		return err
	}
	return fsutil.SyncDir(filepath.Dir(link))
}

// inside is a path as the host itself has it.
func (p Places) inside(path string) string {
	rel, err := filepath.Rel(p.at("/"), path)
	if err != nil {
		return path
	}
	return "/" + rel
}

// agentConfig is the agent's configuration, relative to /etc.
func agentConfig() string {
	rel, err := filepath.Rel("/etc", agentconfig.DefaultFile)
	if err != nil {
		return ""
	}
	return rel
}
