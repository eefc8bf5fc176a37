package peertransfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// Listener keeps the chunk server listening on an address that may change.
type Listener struct {
	// Address is the address to listen on, host:port. Run calls it every minute, and at
	// every Changed.
	Address func() (string, error)
	// Serve answers on a listener until its context ends.
	Serve func(ctx context.Context, l net.Listener)
	// Report is called when the server listens (err is nil) and when it cannot.
	Report  func(address string, err error)
	Changed <-chan struct{}
}

// BusyError says that another process has the port.
type BusyError struct{ Address, Holder string }

func (e *BusyError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another process"
	}
	return fmt.Sprintf("cannot listen for peers on %s: %s listens there", e.Address, holder)
}

const (
	// retryInterval is the time after a failed listen.
	retryInterval = 5 * time.Second
	// addressInterval is how often the node's address is read.
	addressInterval = time.Minute
)

// Run listens until the context ends.
func (d *Listener) Run(ctx context.Context) {
	for ctx.Err() == nil {
		address, err := d.Address()
		var l net.Listener
		if err == nil {
			l, err = listen(ctx, address)
		}
		if ctx.Err() != nil {
			return
		}
		d.Report(address, err)
		if err != nil {
			d.wait(ctx, retryInterval)
			continue
		}
		d.serveOn(ctx, l, address)
	}
}

// serveOn serves until the address changes.
func (d *Listener) serveOn(ctx context.Context, l net.Listener, address string) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		d.Serve(ctx, l)
	}()
	for d.wait(ctx, addressInterval) {
		if now, err := d.Address(); err == nil && now != address {
			break
		}
	}
	cancel()
	<-ended
	_ = l.Close() // usually closed already
}

// wait is false when the context ended.
func (d *Listener) wait(ctx context.Context, most time.Duration) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-d.Changed:
	case <-t.C:
	}
	return true
}

// listen listens on one address of this node, not on all of them.
func listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		_, text, _ := net.SplitHostPort(address)
		number, _ := strconv.Atoi(text)
		return nil, &BusyError{address, FindPortHolder("/proc", number)}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("cannot listen for peers on %s: this node has no such address; set listen in /etc/refit/agent.yaml to one that it has", address)
	}
	return nil, fmt.Errorf("cannot listen for peers on %s: %w", address, err)
}
