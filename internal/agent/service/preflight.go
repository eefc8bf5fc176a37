package service

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/host/crio"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
)

// preflightPause is the time between two checks of incomplete images.
const preflightPause = 3 * time.Second

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// Preflight checks the node's images and returns when its kubelet may start.
func Preflight(ctx context.Context, conf agentconfig.Config, patience time.Duration, log *slog.Logger) (coldstart.Report, error) {
	boot, err := bootID()
	if err != nil {
		log.Error("failed to read the boot ID", "error", err)
	}
	conf = conf.WithDefaultPaths()
	o := coldstart.Options{Config: conf, BootID: boot, Patience: patience, Pause: preflightPause, Log: log}
	// Before anything that may fail: the kubelet's unit calls this at every start.
	if r, done := coldstart.Done(conf, boot); done {
		return r, nil
	}
	for _, p := range conf.Problems {
		log.Error("configuration of the agent damaged", "error", p.Message)
		statefile.At(conf.RunPath()).Add(p)
	}
	if why := coldstart.DisabledBy(coldstart.KernelCommandLine, coldstart.OffFile); why != "" {
		return coldstart.Skip(o, why)
	}
	var rt imagekeeper.NodeRuntime
	o.Open = func(ctx context.Context) (_ coldstart.Runtime, err error) {
		rt, err = imagekeeper.Open(ctx, conf.Runtime, crio.Places{}, log)
		return rt, err
	}
	r, err := coldstart.Run(ctx, o)
	if rt != nil && r.Released == "" { // a check that hangs may still use it
		err = errors.Join(err, rt.Close())
	}
	return r, err
}

// FillImportFolder runs before the unit of a distribution that starts both container runtime and
// kubelet. It returns the names of the images that the unit finds in its directory.
func FillImportFolder(ctx context.Context, conf agentconfig.Config, log *slog.Logger) ([]string, error) {
	folder, supervised := importFolder()
	if !supervised {
		return nil, nil
	}
	if why := coldstart.DisabledBy(coldstart.KernelCommandLine, coldstart.OffFile); why != "" {
		log.Warn("images are not checked", "reason", why)
		return nil, nil
	}
	return folder.Fill(ctx, coldstart.Options{Config: conf.WithDefaultPaths(), Log: log})
}

// importFolder is that of this node; false where the container runtime has a unit of its own.
func importFolder() (coldstart.Folder, bool) {
	d := kube.Supervised("/")
	if d == nil {
		return coldstart.Folder{}, false
	}
	f := coldstart.Folder{Images: d.Place(distribution.WhatImages), Store: d.Place(distribution.WhatStore)}
	return f, f.Images != "" && f.Store != ""
}

// whenSettled returns what is done when all images are pinned: their layers are indexed. What the
// distribution imported from this node's own copy is not needed any more.
func whenSettled(x *coldstart.Indexer) func(context.Context, []model.PinSetImage, *bundlestore.Library) {
	folder, supervised := importFolder()
	return func(ctx context.Context, images []model.PinSetImage, lib *bundlestore.Library) {
		if supervised {
			if err := folder.Clear(); err != nil {
				x.Log.Warn("failed to remove archives that the distribution imported", "error", err)
			}
		}
		x.Index(ctx, images, lib)
	}
}

// NoteEnd is called when the unit of the check stops. If the machine shuts down, the next start
// need not compare contents.
func NoteEnd(ctx context.Context, conf agentconfig.Config) error {
	m, err := systemd.Connect(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if stopping, err := m.Stopping(ctx); err != nil || !stopping {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	return coldstart.RecordShutdown(conf.WithDefaultPaths(), boot)
}

// drillOf returns a function that records a drill and restarts the machine.
func drillOf(conf agentconfig.Config) func(ctx context.Context, id string) error {
	return func(ctx context.Context, id string) error {
		boot, err := bootID()
		if err != nil {
			return err
		}
		fresh, err := coldstart.Arm(conf, id, boot)
		if err != nil || !fresh {
			return err
		}
		m, err := systemd.Connect(ctx)
		if err != nil {
			return err
		}
		defer m.Close()
		return m.Reboot(ctx)
	}
}
