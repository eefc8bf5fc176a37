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

// Door keeps the chunk server open at an address that may change.
type Door struct {
	// Where is the address to listen on, host:port. It is asked every minute, and at
	// every Changed.
	Where func() (string, error)
	// Serve answers on a listener until its context ends.
	Serve func(ctx context.Context, l net.Listener)
	// Tell is called when the door opens (err is nil) and when it cannot.
	Tell    func(address string, err error)
	Changed <-chan struct{}
}

// BusyError says that another process holds the port.
type BusyError struct{ Address, Holder string }

func (e *BusyError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another process"
	}
	return fmt.Sprintf("peers cannot be answered on %s: %s listens there", e.Address, holder)
}

const (
	// retryInterval after a listen that failed.
	retryInterval = 5 * time.Second
	// lookInterval is how often the node's address is looked up.
	lookInterval = time.Minute
)

// Run works until the context ends.
func (d *Door) Run(ctx context.Context) {
	for ctx.Err() == nil {
		address, err := d.Where()
		var l net.Listener
		if err == nil {
			l, err = listen(ctx, address)
		}
		if ctx.Err() != nil {
			return
		}
		d.Tell(address, err)
		if err != nil {
			d.wait(ctx, retryInterval)
			continue
		}
		d.open(ctx, l, address)
	}
}

// open serves until the address is another one.
func (d *Door) open(ctx context.Context, l net.Listener, address string) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		d.Serve(ctx, l)
	}()
	for d.wait(ctx, lookInterval) {
		if now, err := d.Where(); err == nil && now != address {
			break
		}
	}
	cancel()
	<-ended
	_ = l.Close() // closed already, as a rule
}

// wait is false when the context ended.
func (d *Door) wait(ctx context.Context, most time.Duration) bool {
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

// listen opens one address of this node, not all of them.
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
		return nil, fmt.Errorf("peers cannot be answered on %s: this node has no such address; name one that it has as listen in /etc/refit/agent.yaml", address)
	}
	return nil, fmt.Errorf("peers cannot be answered on %s: %w", address, err)
}
