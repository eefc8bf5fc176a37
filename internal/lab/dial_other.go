//go:build !linux

package lab

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Dial fails: see the package for Linux.
func (l *Lab) Dial(context.Context, string, string, string) (net.Conn, error) {
	return nil, errors.New("a lab can only run on Linux")
}

// Listen fails: see the package for Linux.
func (l *Lab) Listen(context.Context, string, string, string) (net.Listener, error) {
	return nil, errors.New("a lab can only run on Linux")
}

func ownNetwork() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
