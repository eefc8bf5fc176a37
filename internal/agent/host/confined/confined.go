package confined

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/refit-dev/refit/internal/fsutil"
)

// Command is what is run.
type Command struct {
	// Program is a file of the host; everybody may read and execute it.
	Program string
	Args    []string
	// Files are put into the root of the program, by name.
	Files map[string][]byte
	// Dir is a directory in which a mount point can be made.
	Dir string
}

// maxOutput is how much a program may print.
const maxOutput = 1 << 20

// errTooMuch ends a program that prints more.
var errTooMuch = errors.New("it prints more than 1 MiB")

// Output runs the command to its end and returns what it printed.
func Output(ctx context.Context, c Command) ([]byte, error) {
	var out, said bounded
	err := run(ctx, c, &out, &said)
	if err == nil && (out.full || said.full) {
		err = errTooMuch
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%w: %.300s", err, strings.TrimSpace(said.buf.String()))
	}
	return out.buf.Bytes(), nil
}

// bounded keeps the first bytes and refuses the rest.
type bounded struct {
	buf  bytes.Buffer
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > maxOutput {
		b.full = true
		return 0, errTooMuch
	}
	return b.buf.Write(p)
}

// static reports whether a program needs nothing else of the host.
func static(program string) bool {
	f, err := os.Open(program)
	if err != nil {
		return false
	}
	defer f.Close()
	p, err := fsutil.ReadProgram(f)
	return err == nil && p.Static
}
