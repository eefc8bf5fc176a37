// Command lookalike stands in for k3s, RKE2 and k0s in the lab. It is none of them: it has none
// of their code. Their releases cannot be built here, so the lab has a look-alike with
// their places, units and failures, made of real parts.
//
// One program carries the parts and unpacks them below its data directory: kubelet, API
// server, controllers, scheduler, kube-proxy, containerd, etcd, kine. The unit starts it as
// server or agent, and it starts the parts. If one of them ends, all end, and systemd starts
// the unit again. Containers live on over a restart, as with the real units.
//
// What it imitates: k3s and RKE2 import images at their start only. The server applies add-ons
// from a directory. Agents wait while their server is unavailable, and reach the API at a loopback
// address. Versions have a build. The server of k3s stores in SQLite through kine, unless
// cluster-init is set.
//
// Of k0s it has the words controller and worker, and a kubelet that does not report the build. As
// the real one it imports again while it runs, pins what it imports, and removes these pins when
// the archive is gone. kube-proxy is a DaemonSet.
//
// What differs: parts are processes of their own, also those that k3s has in one process
// and RKE2 in static pods. Servers answer agents at port 9345 only. There is one server. The
// pods' network is the lab's. kubeadm issues the certificates.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// What it claims to be, set by the linker.
var (
	face    = "k3s"
	version = "v0.0.0+k3s1"
	// release is the version without the build: kubeadm's.
	release = "v0.0.0"
	// base is the data directory of tests.
	base = ""
)

// Places of the real ones.
var (
	at   = layoutOf(face, base)
	data = at.data
)

const (
	pods     = "10.244.0.0/16"
	services = "10.96.0.0/16"
	dns      = "10.96.0.10"
)

// links are the names under which installers link the program.
var links = map[string]bool{"kubectl": true, "ctr": true, "crictl": true}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if !links[name] && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	if err := run(name, args); err != nil {
		fmt.Fprintf(os.Stderr, "%s look-alike: %v\n", face, err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	if face == "k0s" {
		if command, ok := k0sCommands[name]; ok {
			name = command
		} else if !links[name] {
			return fmt.Errorf("unknown command %q: use controller, worker, kubectl, ctr or version", name)
		}
	}
	switch name {
	case "--version":
		if face == "k0s" { // the real one prints the version alone
			fmt.Println(version)
			return nil
		}
		fmt.Printf("%s version %s (look-alike of refit's lab)\n", face, version)
		return nil
	case "server", "agent":
		if err := executeCopy(name, args); err != nil {
			return err
		}
		return serve(name == "server")
	case "etcd-snapshot":
		if len(args) == 0 || args[0] != "save" {
			return fmt.Errorf("the look-alike knows etcd-snapshot save only")
		}
		return saveSnapshot(args[1:])
	case "kubectl":
		return become("kubectl", args, "KUBECONFIG", at.admin)
	case "ctr", "crictl":
		return become("ctr", args, "CONTAINERD_ADDRESS", at.socket)
	}
	return fmt.Errorf("unknown command %q: use server, agent, kubectl, ctr, etcd-snapshot save or --version", name)
}

// k0sCommands are its words for what k3s and RKE2 call otherwise. It has no command that saves
// etcd alone.
var k0sCommands = map[string]string{"controller": "server", "worker": "agent", "version": "--version"}

// executeCopy does as k3s: the process of its unit is a copy below the data directory. That
// of RKE2 is the program itself.
func executeCopy(name string, args []string) error {
	bin, err := unpack()
	if err != nil || face != "k3s" {
		return err
	}
	to := filepath.Join(bin, face)
	if own, err := os.Executable(); err != nil || own == to {
		return err
	}
	return syscall.Exec(to, append([]string{face, name}, args...), os.Environ())
}

// become executes one of the parts, with a variable that is not set yet.
func become(part string, args []string, variable, value string) error {
	bin, err := unpack()
	if err != nil {
		return err
	}
	if os.Getenv(variable) == "" {
		os.Setenv(variable, value)
	}
	return syscall.Exec(filepath.Join(bin, part), append([]string{part}, args...), os.Environ())
}

// settings are the keys of the configuration file that the look-alike reads.
func settings() (map[string]string, error) {
	text, err := os.ReadFile(at.config)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(key, "#") {
			out[key] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	if out["node-name"] == "" {
		if out["node-name"], err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
