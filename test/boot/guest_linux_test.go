package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/osdeploy"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
)

// In the machine this program is refit-agent: its unit calls it so.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "refit-agent" {
		if err := runAgent(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Files in the machine.
const (
	stateDir   = "/var/lib/refit"
	orderFile  = stateDir + "/machine/order.json"
	resultFile = stateDir + "/machine/result.json"
	imagesDir  = "/run/images"
)

// order is what the agent in the machine is to do.
type order struct {
	Attempt int32 `json:"attempt"`
	// Image by digest, and its directory on the second disk.
	Image string   `json:"image"`
	Name  string   `json:"name"`
	Kargs []string `json:"kargs,omitempty"`
	// ReadySeconds that the node may take to be Ready, and the port of the API server.
	ReadySeconds int32 `json:"readySeconds"`
	Port         int   `json:"port"`
}

// outcome of an order.
type outcome struct {
	Attempt int32             `json:"attempt"`
	State   string            `json:"state"`
	Reason  string            `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
	Fields  map[string]string `json:"fields"`
}

// runAgent does what the order says, over restarts of the machine, as the agent's engine does.
func runAgent(ctx context.Context) error {
	if err := notifyReady(); err != nil {
		return err
	}
	for ; ; time.Sleep(time.Second) {
		var o order
		var done outcome
		if ok, err := fsutil.ReadJSON(orderFile, &o); err != nil || !ok {
			continue // not yet written whole
		}
		if ok, err := fsutil.ReadJSON(resultFile, &done); err == nil && ok && done.Attempt == o.Attempt {
			continue
		}
		out, err := work(ctx, o)
		if err == nil {
			err = fsutil.WriteJSON(resultFile, out)
		}
		if err != nil {
			return err
		}
		console("machine: the step ended " + out.State + " " + out.Reason)
	}
}

func console(text string) {
	_ = os.WriteFile("/dev/console", []byte(text+"\r\n"), 0)
}

// work drives the step until it ends.
func work(ctx context.Context, o order) (outcome, error) {
	c := &model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: o.Image, KernelArguments: o.Kargs, ReadySeconds: o.ReadySeconds}}
	h := &host{order: o, config: string(c.JSON())}
	u := osdeploy.New(h, stateDir+"/os.json").WithBootCounter(&osdriver.BootCounter{Runner: osdriver.Command{}})
	dir := fmt.Sprintf("%s/machine/run-%d", stateDir, o.Attempt)
	t := updaters.Task{UID: dir, Attempt: o.Attempt, Started: time.Now(), Dir: dir, Rollback: dir + "/rollback"}
	t.Step.ID, t.Step.Updater, t.Step.Verb, t.Step.Params = "os-image", "os-image", "apply", map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, h.config)}
	if err := os.MkdirAll(t.Rollback, 0o700); err != nil {
		return outcome{}, err
	}
	last := ""
	for {
		r, err := u.Update(ctx, t)
		if err != nil {
			r.Message = err.Error()
		}
		if r.Message != last {
			last = r.Message
			console("machine: " + last)
		}
		if r.Done || r.Failed {
			out := outcome{Attempt: o.Attempt, State: "Done", Reason: r.Reason, Message: r.Message, Fields: u.Fields(ctx, c)}
			if r.Failed {
				out.State = "Failed"
			}
			return out, nil
		}
		time.Sleep(max(r.After, time.Second))
	}
}

// host is the machine as the updater needs it.
type host struct {
	order  order
	config string
}

func (h *host) Config(string) (string, bool) { return h.config, true }

func (h *host) Driver(ctx context.Context) (osdriver.Driver, error) {
	return osdriver.Detect(ctx, osdriver.Host{Runner: osdriver.Command{}}, osdriver.Openers{
		Whole: func(ctx context.Context, s osdriver.Source) (io.ReadCloser, error) {
			root, err := oci.OpenSingle(s.Location)
			if err != nil {
				return nil, err
			}
			return flatten.Tree(ctx, root, platform, flatten.Whole)
		},
	})
}

func (h *host) Image(context.Context, string) (osdriver.Source, []string, error) {
	dir := filepath.Join(imagesDir, h.order.Name)
	_, err := os.Stat(dir)
	return osdriver.Source{Transport: osdriver.Layout, Location: dir}, nil, err
}

func (h *host) Fetch(ctx context.Context, image string) (osdriver.Source, []string, error) {
	return h.Image(ctx, image)
}
func (h *host) Forget() error { return nil }

func (h *host) Boot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

func (h *host) Reboot(ctx context.Context, _ bool) error {
	_, err := osdriver.Command{}.Run(ctx, nil, "systemctl", "--no-block", "reboot")
	return err
}

// KubeletHealthy: no kubelet runs in the machine.
func (h *host) KubeletHealthy(context.Context) error { return nil }

// Ready asks the API server, which the machine reaches over its network alone.
func (h *host) Ready(ctx context.Context) (string, bool) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", fmt.Sprintf("10.0.2.2:%d", h.order.Port))
	if err != nil {
		return "this node has no way to the API server: " + err.Error(), !errors.Is(err, unix.ENETUNREACH)
	}
	defer c.Close()
	return "", false
}
func (h *host) KubeletState(context.Context) string { return "no kubelet runs in this machine" }

// notifyReady tells systemd that the service runs.
func notifyReady() error {
	c, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return fmt.Errorf("systemd's socket: %w", err)
	}
	defer c.Close()
	_, err = c.Write([]byte("READY=1"))
	return err
}

// parse reads the outcome of an attempt, nil if it has not ended.
func parse(text string, attempt int32) *outcome {
	var out outcome
	if json.Unmarshal([]byte(text), &out) != nil || out.Attempt != attempt {
		return nil
	}
	return &out
}
