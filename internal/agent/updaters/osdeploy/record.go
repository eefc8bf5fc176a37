package osdeploy

import (
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil"
)

// record is the file that lists what refit set on this machine, whichever image is booted.
type record string

// recordData is its content.
type recordData struct {
	// OwnKargs are the kernel arguments that refit set: it removes only these.
	OwnKargs []string `json:"given,omitempty"`
	// RequestedDigest is the digest in the configuration, and BootedDigest that by which
	// the host knows the same content.
	RequestedDigest string `json:"asked,omitempty"`
	BootedDigest    string `json:"booted,omitempty"`
	// PreviousDigest is the digest of what was booted before that, empty for no image.
	PreviousDigest string `json:"before,omitempty"`
	// Stock is what the machine ran before the first image of refit, and History what it has
	// booted since, the newest last.
	Stock   string         `json:"stock,omitempty"`
	History []historyEntry `json:"history,omitempty"`
	// Failed is the last image that this node booted and rolled back from by itself.
	Failed *failedImage `json:"bad,omitempty"`
	// Prepared is for a run that has not started; nil if nothing is prepared.
	Prepared *prepared `json:"prepared,omitempty"`
}

// failedImage is an image with which this node did not become Ready.
type failedImage struct {
	Digest string `json:"digest"`
	Why    string `json:"why"`
}

// aliasesOf are other digests of a requested image.
func (g recordData) aliasesOf(digest string) []string {
	if digest != "" && digest == g.RequestedDigest && g.BootedDigest != "" {
		return []string{g.BootedDigest}
	}
	return nil
}

// requestedDigest is the digest by which people know what the host has booted.
func (g recordData) requestedDigest(booted string) string {
	if booted != "" && booted == g.BootedDigest {
		return g.RequestedDigest
	}
	return booted
}

func (r record) load() (g recordData, err error) {
	if _, err := fsutil.ReadJSON(string(r), &g); err != nil {
		return g, fmt.Errorf("record of this machine's OS: %w", err)
	}
	return g, nil
}

// update writes the record if do changes it.
func (r record) update(do func(*recordData)) error {
	return updaters.UpdateRecord(string(r), r.load, do)
}

// addKargs records arguments before they are set. Arguments that the machine has by itself
// are not refit's.
func (r record) addKargs(args, running []string) error {
	return r.update(func(g *recordData) {
		for _, a := range args {
			if !slices.Contains(g.OwnKargs, a) && !slices.Contains(running, a) {
				g.OwnKargs = append(g.OwnKargs, a)
			}
		}
	})
}

// recordBooted drops the arguments that were removed, and records by which digest the host
// knows the image.
func (r record) recordBooted(v *view, at time.Time) error {
	b, err := loadPreviousBoot(v.task)
	if err != nil {
		return err
	}
	return r.update(func(g *recordData) {
		if b != nil {
			g.PreviousDigest = b.Digest
		}
		g.OwnKargs = slices.DeleteFunc(g.OwnKargs, func(a string) bool { return !slices.Contains(v.target.Kargs, a) })
		g.RequestedDigest, g.BootedDigest = v.target.Digest, v.status.Booted.Digest
		g.Prepared = nil // it is booted
		g.addHistory(at, imageName(v.target.Image, v.target.Digest), "")
		if g.Failed != nil && g.Failed.Digest == v.target.Digest {
			g.Failed = nil
		}
	})
}
