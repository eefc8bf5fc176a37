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

// Terminal refuses a command that would ask where nobody can answer. before is what it
// asks about, for example "refit apply asks before it moves nodes".
func Terminal(in *os.File, before string) error {
	if term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return exit.Usage(fmt.Errorf("%s, and there is no terminal to ask on: say --yes", before))
}

// Yes asks on w and waits for a line of in. It is nil for a yes; a no has exit code
// Blocked, and Interrupted if the context ended first. The reader of in stays behind
// then: the command is to end.
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
		return exit.With(exit.Interrupted, errors.New("not started: interrupted before there was an answer"))
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
		return exit.With(exit.Blocked, errors.New("not started: there was no answer"))
	}
	return exit.With(exit.Blocked, fmt.Errorf("not started: %.20q is no answer to this; only y or yes starts it", line))
}
