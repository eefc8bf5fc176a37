package confirm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/refit-dev/refit/internal/cli/exit"
)

// Terminal refuses a command that would ask without a terminal. before is the reason to
// ask, for example "refit apply asks before it updates nodes".
func Terminal(in *os.File, before string) error {
	if term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return exit.Usage(fmt.Errorf("%s, and there is no terminal: use --yes", before))
}

// Yes asks on w and waits for a line of in. It returns nil for a yes; a no has exit code
// Blocked, and Interrupted if the context ended first. The reader of in then stays
// blocked, so the command must end.
func Yes(ctx context.Context, in io.Reader, w io.Writer, ask string) error {
	fmt.Fprintf(w, "%s [y/N] ", ask)
	type answer struct {
		line string
		err  error
	}
	said := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		said <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(w)
		return exit.With(exit.Interrupted, errors.New("not started: interrupted before an answer"))
	case a := <-said:
		if a.err != nil {
			fmt.Fprintln(w) // the cursor still stands behind the question
		}
		return judge(strings.TrimSpace(a.line), a.err)
	}
}

func judge(line string, err error) error {
	switch strings.ToLower(line) {
	case "y", "yes":
		if err == nil {
			return nil
		}
	case "n", "no":
		return exit.With(exit.Blocked, errors.New("not started"))
	}
	if line == "" {
		return exit.With(exit.Blocked, errors.New("not started: no answer"))
	}
	return exit.With(exit.Blocked, fmt.Errorf("not started: %.20q is not an answer; only y or yes starts it", line))
}
