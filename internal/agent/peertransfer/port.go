package peertransfer

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FindPortHolder names the process that listens on a TCP port, for example "speaker (process
// 4711, /kubepods/...)"; "" if none is found. proc is /proc, except in tests.
func FindPortHolder(proc string, port int) string {
	sockets := map[string]bool{}
	for _, file := range []string{"net/tcp", "net/tcp6"} {
		addListeningSockets(filepath.Join(proc, file), port, sockets)
	}
	if len(sockets) == 0 {
		return ""
	}
	all, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, dir := range all {
		if hasSocket(dir, sockets) {
			return describeProcess(dir)
		}
	}
	return ""
}

// addListeningSockets collects the inodes of sockets that listen on a port (state 0A).
func addListeningSockets(file string, port int, into map[string]bool) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	want := fmt.Sprintf(":%04X", port)
	for s := bufio.NewScanner(f); s.Scan(); {
		if c := strings.Fields(s.Text()); len(c) > 9 && strings.HasSuffix(c[1], want) && c[3] == "0A" {
			into["socket:["+c[9]+"]"] = true
		}
	}
}

func hasSocket(dir string, sockets map[string]bool) bool {
	fds, _ := filepath.Glob(filepath.Join(dir, "fd", "*"))
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && sockets[to] {
			return true
		}
	}
	return false
}

// describeProcess is the name of a process, its number, and its unit or pod.
func describeProcess(dir string) string {
	name, _ := os.ReadFile(filepath.Join(dir, "comm"))
	text := fmt.Sprintf("%s (process %s", strings.TrimSpace(string(name)), filepath.Base(dir))
	if group := cgroupOf(dir); group != "" && group != "/" {
		text += ", " + group
	}
	return text + ")"
}

func cgroupOf(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return ""
	}
	for _, l := range strings.Split(string(b), "\n") {
		p := strings.SplitN(l, ":", 3)
		if _, err := strconv.Atoi(p[0]); err == nil && len(p) == 3 && (p[1] == "" || p[1] == "name=systemd") {
			return p[2]
		}
	}
	return ""
}
