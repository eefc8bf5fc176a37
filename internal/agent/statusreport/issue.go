package statusreport

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// IssueFile is what agetty shows above the login prompt of a console, after /etc/issue.
	// It ignores /run/issue.d where /etc/issue exists.
	IssueFile = "/etc/issue.d/refit.issue"
	// reloadFile makes agetty show its prompt again when its time changes.
	reloadFile = "/run/agetty.reload"
)

// Issue shows the sentence of a node on its consoles.
type Issue struct {
	// Path of the file; Reload is touched after a change, unless it is empty.
	Path, Reload string
	last         string
}

// NewIssue is the issue of this machine.
func NewIssue() *Issue { return &Issue{Path: IssueFile, Reload: reloadFile} }

// Update writes the file if its sentence, its colour or the answer about the medium changed.
func (i *Issue) Update(n NodeStatus) error {
	key := n.Colour + n.Sentence + n.mediumLine()
	if key == i.last {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(i.Path), 0o755); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	if err := fsutil.WriteFile(i.Path, []byte(issueText(n)), 0o644); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	i.last = key
	i.touch()
	return nil
}

// issueText is the file. agetty expands backslashes.
func issueText(n NodeStatus) string {
	lines := []string{
		fmt.Sprintf("refit (%s, since %s): %s", n.Colour, stamp(n.ReadAt), n.Sentence),
		n.mediumLine() + ".",
	}
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(text.CleanLine(l), `\`, `\\`)
	}
	return strings.Join(lines, "\n") + "\n"
}

// Remove removes the file when the agent stops: nothing updates it then.
func (i *Issue) Remove() {
	i.last = ""
	if os.Remove(i.Path) == nil {
		i.touch()
	}
}

// touch is best effort: a console that shows an old sentence shows the new one after Return.
func (i *Issue) touch() {
	if i.Reload == "" {
		return
	}
	f, err := os.OpenFile(i.Reload, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = f.Close()
	now := time.Now()
	_ = os.Chtimes(i.Reload, now, now)
}
