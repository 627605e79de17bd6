package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// TranslationsAtOnce is how many translations a child may ask for at once.
const TranslationsAtOnce = 2

// Translate has translate called for what the child wants to be translated from now on,
// in a goroutine of its own; nil: TypeScript is not available, as it is not before
// Translate is called. Its ctx ends with the connection; Close waits for it.
func (c *Client) Translate(translate func(ctx context.Context, s sandbox.Source) (sandbox.Translation, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.translate = translate
}

// wantTranslation answers a child in the background. An error says that the child does
// not keep to the protocol.
func (c *Client) wantTranslation(f Frame) error {
	var s sandbox.Source
	if err := json.Unmarshal(f.Body, &s); err != nil {
		return fmt.Errorf("reading what is to be translated: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	if c.translating >= TranslationsAtOnce || len(s.Code) > sandbox.MaxSource {
		return errors.New("it wants more translated than it may")
	}
	c.translating++
	translate := c.translate
	c.serving.Go(func() {
		if err := c.translated(f.ID, translation(c.ctx, translate, s)); err != nil {
			c.fail(err)
		}
	})
	return nil
}

// translated answers a child. A translation counts until its answer is the next to be
// written: then the child can ask for another. Where the child does not read, the answers
// that wait for that count, so that it gets the server to hold one more than it may ask for.
func (c *Client) translated(id uint32, t sandbox.Translation) error {
	body, err := json.Marshal(t)
	if err == nil && len(body) > maxBody {
		body, err = json.Marshal(untranslated("SyntaxError", "the JavaScript of the program is too long"))
	}
	if err != nil {
		return fmt.Errorf("encoding a translation: %w", err)
	}
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.mu.Lock()
	c.translating--
	c.mu.Unlock()
	return c.conn.writeLocked(KindTranslated, id, body)
}

// translation calls translate, and has an error be the program's.
func translation(ctx context.Context, translate func(context.Context, sandbox.Source) (sandbox.Translation, error), s sandbox.Source) sandbox.Translation {
	if translate == nil {
		return untranslated("Unsupported", "TypeScript is not available here")
	}
	t, err := translate(ctx, s)
	if err != nil {
		return untranslated("Unavailable", "TypeScript cannot be translated now: "+fault.Of(err).Message)
	}
	return t
}

func untranslated(kind, why string) sandbox.Translation {
	return sandbox.Translation{Error: &sandbox.ProgramError{Type: kind, Message: why, Traceback: kind + ": " + why + "\n"}}
}
