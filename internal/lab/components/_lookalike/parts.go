package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// footer follows the packed parts: their digest in hex, and their length in 16 hex digits.
const footer = 64 + 16

// unpack returns the directory with the parts, and unpacks them if this program is new.
func unpack() (string, error) {
	if own, err := os.Executable(); err == nil && strings.HasPrefix(own, filepath.Join(data, "data")+"/") {
		return filepath.Dir(own), nil
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer self.Close()
	st, err := self.Stat()
	if err != nil {
		return "", err
	}
	end := make([]byte, footer)
	if _, err := self.ReadAt(end, st.Size()-footer); err != nil {
		return "", err
	}
	digest := string(end[:64])
	size, err := strconv.ParseInt(string(end[64:]), 16, 64)
	if _, bad := hex.DecodeString(digest); err != nil || bad != nil || size > st.Size() {
		return "", errors.New("this program carries no parts")
	}
	dir := filepath.Join(data, "data", digest)
	if _, err := os.Stat(dir); err == nil {
		return filepath.Join(dir, "bin"), nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), "part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	if err := extract(io.NewSectionReader(self, st.Size()-footer-size, size), filepath.Join(temp, "bin")); err != nil {
		return "", fmt.Errorf("unpacking the parts: %w", err)
	}
	bare, err := os.OpenFile(filepath.Join(temp, "bin", face), os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return "", err
	}
	if _, err = io.Copy(bare, io.NewSectionReader(self, 0, st.Size()-footer-size)); err != nil {
		return "", err
	}
	if err := bare.Close(); err != nil {
		return "", err
	}
	return filepath.Join(dir, "bin"), os.Rename(temp, dir)
}

func extract(from io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, filepath.Base(h.Name)), os.O_WRONLY|os.O_CREATE, 0o755)
		if err != nil {
			return err
		}
		if _, err = io.Copy(f, r); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// family are the processes that this one started. The first that ends ends all.
type family struct {
	bin   string
	ctx   context.Context
	end   context.CancelCauseFunc
	alive sync.WaitGroup
}

func newFamily(bin string) *family {
	f := &family{bin: bin}
	f.ctx, f.end = context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		f.end(nil)
	}()
	return f
}

// start starts a part. The kernel kills it when this process dies, but not the containers.
func (f *family) start(part string, args ...string) {
	f.alive.Go(func() {
		// The kernel counts the death of the thread that started the process.
		runtime.LockOSThread()
		cmd := exec.CommandContext(f.ctx, filepath.Join(f.bin, part), args...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		err := cmd.Run()
		f.end(fmt.Errorf("%s ended: %v", part, err))
	})
}

// output runs a part to its end.
func (f *family) output(part string, args ...string) (string, error) {
	cmd := exec.CommandContext(f.ctx, filepath.Join(f.bin, part), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+at.admin)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", part, strings.Join(args, " "), err, complaint.String())
	}
	return string(out), nil
}

// until asks again until there is no error, or the family ends.
func (f *family) until(what string, do func() error) error {
	for last := ""; ; {
		err := do()
		if err == nil {
			return nil
		}
		if text := err.Error(); text != last {
			fmt.Fprintf(os.Stderr, "waiting for %s: %s\n", what, text)
			last = text
		}
		select {
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// ready tells systemd, if it asked.
func ready() error {
	at := os.Getenv("NOTIFY_SOCKET")
	if at == "" {
		return nil
	}
	c, err := net.Dial("unixgram", at)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("READY=1"))
	return err
}
