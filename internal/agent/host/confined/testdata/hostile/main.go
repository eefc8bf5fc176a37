// A program that tries what it must not, and prints what it could do.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "flood" {
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 4096)); err != nil {
				os.Exit(1)
			}
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "stay" {
		time.Sleep(time.Hour)
	}
	fmt.Println("uid", os.Getuid(), os.Geteuid(), os.Getgid())
	groups, _ := os.Getgroups()
	fmt.Println("groups", groups)
	for _, dir := range []string{"/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/etc", "/usr", "/proc", os.Args[1]} {
		if err := os.WriteFile(filepath.Join(dir, "pwned"), []byte("x"), 0o600); err == nil {
			fmt.Println("wrote", dir)
		}
		if err := os.Mkdir(filepath.Join(dir, "pwned-dir"), 0o700); err == nil {
			fmt.Println("made", dir)
		}
	}
	if c, err := net.DialTimeout("tcp", os.Args[2], time.Second); err == nil {
		c.Close()
		fmt.Println("reached", os.Args[2])
	}
	if all, _ := net.Interfaces(); len(all) > 1 {
		fmt.Println("interfaces", len(all))
	}
	if err := syscall.Setuid(0); err == nil {
		fmt.Println("became root")
	}
	if err := syscall.Mount("x", "/", "tmpfs", 0, ""); err == nil {
		fmt.Println("mounted")
	}
	if err := syscall.Chroot("/"); err == nil {
		fmt.Println("chroot")
	}
	if err := syscall.Mknod("/dev-null", syscall.S_IFCHR|0o666, 1<<8|3); err == nil {
		fmt.Println("mknod")
	}
	if err := syscall.Kill(-1, 0); err == nil {
		fmt.Println("sees processes")
	}
	if err := exec.Command("/bin/sh", "-c", "true").Run(); err == nil {
		fmt.Println("shell")
	}
	if text, err := os.ReadFile("/given"); err == nil {
		fmt.Println("given", string(text))
	}
	fmt.Println("pid", os.Getpid())
}
