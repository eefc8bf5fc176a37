// Package bootimagecheck decides at a machine's first boot, before it joins, whether its
// boot image is new enough. It also reads what identifies the machine: the installed
// image, the boot loader and the CPU level.
//
// Promise: nothing of the machine changes before the decision. If the limits hold they
// are removed and the machine joins; without limits it joins. If they do not hold, or
// cannot be read, the check fails, so that the machine does not join, and the console
// shows image, limits and fix. An interrupted check starts again at the next boot. No
// remote answer is needed: a refusal is reported afterwards, and silence changes nothing.
// The readers mount nothing and run no program; an unknown value is empty, never a
// guess. The installed image is the one recorded when the disk was written, which a live
// update does not change.
//
// Inputs: /etc/refit/first-boot.json, a root directory (aleph files, os-release, bootupd
// state, SBAT of shim and GRUB, cpuinfo). Outputs: /run/issue.d, the report, an error.
// Callers: refit-agent first-boot, run by refit-first-boot.service; the agent's facts.
package bootimagecheck

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/convert"
)

// Issue is the text that consoles show before a login prompt. It is gone after a reboot, and
// is written again if it is still true.
const Issue = "/run/issue.d/99-refit-boot-image.issue"

// agettyReload is the file that running consoles watch.
const agettyReload = "/run/agetty.reload"

// Options of a check.
type Options struct {
	// Root of the machine, empty for its own.
	Root string
	// Arch is Go's name of the architecture; empty is the machine's own.
	Arch string
	Now  func() time.Time
	// Out is the journal and the console.
	Out io.Writer
	// Patience is how long the check tries to report a refusal to the cluster.
	Patience time.Duration
}

// RefusedError is a machine that may not join.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return e.Message }

// Check decides. A RefusedError means that the machine must not join.
func Check(ctx context.Context, o Options) error {
	at := func(path string) string { return filepath.Join("/", o.Root, path) }
	data, err := os.ReadFile(at(convert.LimitsPath))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(o.Out, "no limits for boot images: the machine joins")
		return nil
	}
	m := inspectMachine(at("/"), o.Arch)
	f, err := parseLimits(data, err)
	if err != nil {
		return o.refuse(ctx, at, nil, m, fmt.Sprintf("This machine does not join: the limits for its boot image in %s are unreadable: %v. Start it from a newer image, or correct the limits where its pool is configured.", convert.LimitsPath, err))
	}
	if found := f.Evaluate(m, o.Now()); len(found) > 0 {
		return o.refuse(ctx, at, f.Report, m, f.Message(m, found))
	}
	fmt.Fprintf(o.Out, "boot image %s, %v: new enough for pool %s, the machine joins\n", m.OS, m.Facts, f.Pool)
	return errors.Join(removeIfPresent(at(Issue)), removeIfPresent(at(convert.LimitsPath)))
}

func parseLimits(data []byte, err error) (*convert.SkewLimits, error) {
	if err != nil {
		return nil, err
	}
	return convert.ParseSkewLimits(data)
}

func removeIfPresent(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Facts of a machine, as rules know them. Unknown ones are missing.
func Facts(root, arch string) map[string]string {
	if arch == "" {
		arch = runtime.GOARCH
	}
	l := ReadBootloader(root)
	all := map[string]string{skew.FactCPU: CPULevel(root, arch), skew.FactShim: l.Shim, skew.FactGrub: l.Grub}
	if !l.Built.IsZero() {
		all[skew.FactLoader] = l.Built.Format(time.DateOnly)
	}
	for name, v := range all {
		if v == "" {
			delete(all, name)
		}
	}
	return all
}

func inspectMachine(root, arch string) convert.BootedMachine {
	return convert.BootedMachine{OS: BootedVersion(root), Facts: Facts(root, arch)}
}

// refuse reports a refusal on the console first, then to the cluster.
func (o Options) refuse(ctx context.Context, at func(string) string, to *convert.ReportTo, m convert.BootedMachine, message string) error {
	refused := &RefusedError{Message: message}
	err := writeIssue(at(Issue), message)
	if f, e := os.OpenFile(at(agettyReload), os.O_CREATE|os.O_WRONLY, 0o600); e == nil { // waiting consoles show it too
		_ = os.Chtimes(at(agettyReload), o.Now(), o.Now())
		_ = f.Close()
	}
	fmt.Fprintln(o.Out, message)
	if to != nil {
		err = errors.Join(err, o.reportRefusal(ctx, to, convert.RefusalReport{OS: m.OS, Machine: m.Facts, Message: message}))
	}
	if err != nil {
		fmt.Fprintln(o.Out, "this refusal could not be reported everywhere:", err)
	}
	return refused
}

// writeIssue replaces the file atomically: a console never reads half a sentence. A
// backslash starts an escape in issue files.
func writeIssue(path, message string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text := "\n" + strings.ReplaceAll(message, `\`, `\\`) + "\n\n"
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(path+".new", 0o644); err != nil { // every user at the console may read it
		return err
	}
	return os.Rename(path+".new", path)
}

// The pause between two requests, and the time for one of them.
const (
	retryInterval  = 3 * time.Second
	requestTimeout = 15 * time.Second
)

// reportRefusal reports a refusal to the server that sent the limits. The network may not be
// up yet.
func (o Options) reportRefusal(ctx context.Context, to *convert.ReportTo, refusal convert.RefusalReport) error {
	ctx, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(to.CA)) {
		return errors.New("report: the server's certificate authority cannot be read")
	}
	body, err := json.Marshal(refusal)
	if err != nil {
		return err
	}
	c := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	for {
		again, err := post(ctx, c, to.URL, body)
		if !again {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("report: %w", err)
		case <-time.After(retryInterval):
		}
	}
}

// post sends a report once; again says whether a retry makes sense.
func post(ctx context.Context, c *http.Client, url string, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("report: the address cannot be read") // it holds a token
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return true, errors.New("the server does not answer")
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode < http.StatusMultipleChoices:
		return false, nil
	case resp.StatusCode >= http.StatusInternalServerError:
		return true, errors.New("the server answers " + resp.Status)
	}
	return false, errors.New("report: the server answers " + resp.Status)
}
