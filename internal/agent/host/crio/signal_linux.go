package crio

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// listener is the process that listens at a socket, as the kernel knows it.
func listener(socket string) (pid int, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, asked); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

func hangUp(pid int) error {
	if err := unix.Kill(pid, unix.SIGHUP); err != nil {
		return fmt.Errorf("having CRI-O (process %d) read its configuration again: %w", pid, err)
	}
	return nil
}
