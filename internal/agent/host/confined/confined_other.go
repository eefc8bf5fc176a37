//go:build !linux

package confined

import (
	"context"
	"errors"
	"io"
)

func run(context.Context, Command, io.Writer, io.Writer) error {
	return errors.New("programs are confined on Linux only")
}
