// Command runc runs the machine's runc without settings that the lab's machine does not
// support. CRI-O gives privileged containers all capabilities, and every container an
// oom_score_adj and limits of huge pages, without a switch. In a virtual machine without
// CAP_SYS_RESOURCE no container would start.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	runc     = "/usr/sbin/runc"
	resource = "CAP_SYS_RESOURCE"
	// bit of it in the sets of /proc/self/status.
	resourceBit = 24
)

func main() {
	if bundle, ok := creates(os.Args[1:]); ok {
		if err := adapt(bundle + "/config.json"); err != nil {
			fmt.Fprintln(os.Stderr, "runc of the lab:", err)
			os.Exit(1)
		}
	}
	err := syscall.Exec(runc, append([]string{"runc"}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, "runc of the lab:", runc, err)
	os.Exit(1)
}

// creates finds the bundle of a container that is to be made.
func creates(args []string) (bundle string, create bool) {
	bundle = "."
	for i, a := range args {
		value, joined := strings.CutPrefix(a, "--bundle=")
		switch {
		case joined:
			bundle = value
		case (a == "--bundle" || a == "-b") && i+1 < len(args):
			bundle = args[i+1]
		case a == "create":
			create = true
		}
	}
	return bundle, create
}

func adapt(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	if linux, ok := config["linux"].(map[string]any); ok {
		if limits, ok := linux["resources"].(map[string]any); ok {
			// CRI-O sets them where the kernel knows huge pages; their controller may be
			// in another hierarchy than the one that runc uses.
			delete(limits, "hugepageLimits")
		}
	}
	if process, ok := config["process"].(map[string]any); ok && !mayRaise() {
		delete(process, "oomScoreAdj")
		if sets, ok := process["capabilities"].(map[string]any); ok {
			for name, list := range sets {
				if all, ok := list.([]any); ok {
					sets[name] = slices.DeleteFunc(all, func(c any) bool { return c == resource })
				}
			}
		}
	}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// mayRaise: this machine has CAP_SYS_RESOURCE to give.
func mayRaise() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set&(1<<resourceBit) != 0
		}
	}
	return false
}
