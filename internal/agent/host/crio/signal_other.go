//go:build !linux

package crio

import "errors"

var errNotLinux = errors.New("CRI-O runs on Linux")

func listener(string) (int, error) { return 0, errNotLinux }

func hangUp(int) error { return errNotLinux }
