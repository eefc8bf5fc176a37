package labcmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/lab"
)

func newRsh(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "rsh HOST COMMAND...",
		Short: "Run a command in a node with the arguments of ssh",
		Long: `Replace ssh for a program that takes a remote shell, as in --rsh "refit-lab rsh".
		Options of ssh and USER@ are ignored. HOST is the name or address of a node, and the
		rest is a command line for the node's shell. The lab is that of --name, given before
		HOST, or of $REFIT_LAB.`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			call, err := parseRsh(args)
			if err != nil {
				return console.UsageError(err)
			}
			if call.name != "" {
				s.name = call.name
			}
			if call.stateDir != "" {
				s.stateDir = call.stateDir
			}
			l, err := s.open()
			if err != nil {
				return err
			}
			node, err := nodeOf(l, call.host)
			if err != nil {
				return err
			}
			return run(cmd, l, node, "sh", "-c", call.line)
		},
	}
}

// rshCall is what a call in ssh's way means here.
type rshCall struct{ name, stateDir, host, line string }

// withValue are ssh's options that are followed by a value.
const withValue = "BbcDEeFIiJLlmOoPpQRSWw"

// parseRsh reads arguments as ssh does: options, host, and the rest joined with
// blanks, which the shell at the other end takes apart again.
func parseRsh(args []string) (rshCall, error) {
	var call rshCall
	for len(args) > 0 {
		option := args[0]
		if !strings.HasPrefix(option, "-") || option == "-" {
			break
		}
		args = args[1:]
		if option == "--" {
			break
		}
		args = call.option(option, args)
	}
	if len(args) == 0 {
		return call, errors.New("no host: use `refit-lab rsh HOST COMMAND...`")
	}
	call.host, args = args[0], args[1:]
	if i := strings.LastIndex(call.host, "@"); i >= 0 {
		call.host = call.host[i+1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return call, errors.New("no command: use `refit-lab rsh HOST COMMAND...`; for a shell, `refit-lab exec NODE -- bash`")
	}
	call.line = strings.Join(args, " ")
	return call, nil
}

// option reads one option and returns the arguments after its value.
func (c *rshCall) option(option string, rest []string) []string {
	for name, field := range map[string]*string{"--name": &c.name, "--state-dir": &c.stateDir} {
		if value, ok := strings.CutPrefix(option, name+"="); ok {
			*field = value
			return rest
		}
		if option == name && len(rest) > 0 {
			*field = rest[0]
			return rest[1:]
		}
	}
	// -4Av is three options; in -p22 the value follows at once, in -p 22 it is the next argument.
	for i, letter := range option[1:] {
		if strings.ContainsRune(withValue, letter) {
			if i == len(option)-2 && len(rest) > 0 {
				return rest[1:]
			}
			return rest
		}
	}
	return rest
}

// nodeOf finds the node by name or address.
func nodeOf(l *lab.Lab, host string) (string, error) {
	if slices.Contains(l.Nodes(), host) {
		return host, nil
	}
	for _, name := range l.Nodes() {
		if l.Address(name) == host {
			return name, nil
		}
	}
	return "", fmt.Errorf("lab %s has no node %q; it has %v", l.Name, host, l.Nodes())
}
