package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/machine"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// groupOf names the control group of the lab in dir. Labs of one name in
// different places are different labs.
func groupOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return kernel.LabGroupPrefix + filepath.Base(dir) + "-" + hex.EncodeToString(sum[:3])
}

// patience is how long the kernel may take to let go of something that ended.
const patience = 20 * time.Second

// Down takes the lab of that name, in the default place, away.
func Down(ctx context.Context, name string) error { return DownIn(ctx, name, "") }

// DownIn takes a lab away: processes, loop devices, control groups, files. It
// works on a lab in any state, also one that is half there or whose supervisor
// was killed, and does nothing if there is none. Mounts, links and namespaces
// belong to the processes and go with them.
func DownIn(ctx context.Context, name, stateDirectory string) error {
	if name == "" {
		name = DefaultName
	}
	if !validName.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a lab", name)
	}
	if os.Geteuid() != 0 {
		return errors.New("taking a lab down needs root: run it with sudo")
	}
	base, err := stateDir(stateDirectory)
	if err != nil {
		return err
	}
	dir := filepath.Join(base, name)
	unlock, err := lock(ctx, base, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := takeDown(ctx, dir); err != nil {
		return err
	}
	return os.Remove(lockPath(base, name))
}

// takeDown removes what is there, in the order in which one holds the other.
func takeDown(ctx context.Context, dir string) error {
	group := groupOf(dir)
	if c, err := supervisor.LoadConfig(dir); err == nil && strings.HasPrefix(c.Group, kernel.LabGroupPrefix) {
		group = c.Group // as it was called by the version that made the lab
	}
	if err := endAll(ctx, dir, group); err != nil {
		return err
	}
	if err := detachAll(ctx, dir); err != nil {
		return err
	}
	if err := kernel.RestoreLimits(ctx); err != nil {
		return fmt.Errorf("setting a limit of the machine back: %w", err)
	}
	return os.RemoveAll(dir)
}

// endAll ends processes until their groups can be removed: a process that was just
// starting when the lab's creator was killed may appear late.
func endAll(ctx context.Context, dir, group string) error {
	for deadline := time.Now().Add(patience); ; {
		if err := endProcesses(ctx, dir, group); err != nil {
			return err
		}
		err := kernel.RemoveCgroup(group, patience/100)
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

// endProcesses ends the supervisor first, else it would start nodes again.
func endProcesses(ctx context.Context, dir, group string) error {
	quit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if process, err := supervisor.LoadProcess(dir); err == nil && process.Alive() {
		_, _ = supervisor.Call(quit, dir, supervisor.Request{Op: supervisor.OpQuit}) // if it does not answer, it is killed
	}
	if err := kernel.KillCgroup(filepath.Join(group, "switch"), patience); err != nil {
		return err
	}
	return kernel.KillCgroup(group, patience)
}

// detachAll detaches disks and media.
func detachAll(ctx context.Context, dir string) error {
	media := pluggedMedia(dir)
	for number, file := range kernel.LoopsBelow(dir) {
		media = append(media, machine.Medium{Loop: number, File: file})
	}
	for _, s := range media {
		if err := kernel.DetachLoop(s.Loop, s.File); err != nil {
			return err
		}
	}
	return waitDetached(ctx, media)
}

// pluggedMedia returns the files that the nodes' records name as plugged in.
func pluggedMedia(dir string) []machine.Medium {
	var all []machine.Medium
	found, _ := filepath.Glob(filepath.Join(dir, "nodes", "*", machine.FileName))
	for _, path := range found {
		if m, err := machine.Load(filepath.Dir(path)); err == nil {
			all = append(all, m.Media...)
		}
	}
	return all
}

// waitDetached waits for the mounts of ended processes to go.
func waitDetached(ctx context.Context, media []machine.Medium) error {
	deadline := time.Now().Add(patience)
	for _, s := range media {
		for len(kernel.LoopsOf(s.File)) > 0 {
			if time.Now().After(deadline) {
				return fmt.Errorf("%s stays attached to /dev/loop%d: something still uses it", s.File, s.Loop)
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func lockPath(base, name string) string { return filepath.Join(base, "."+name+".lock") }

// lock makes up and down of one lab wait for each other.
func lock(ctx context.Context, base, name string) (unlock func(), err error) {
	unlock, err = kernel.AcquireLock(ctx, lockPath(base, name), nil)
	if err != nil {
		return nil, fmt.Errorf("lab %s is being made or taken down: %w", name, err)
	}
	return unlock, nil
}
