package sandboxtest

import (
	"testing"

	"paddock/internal/sandbox"
)

func (k *kit) testState(t *testing.T) {
	t.Run("variables, functions and imports live from run to run", func(t *testing.T) {
		in := k.start(t, k.beside())
		works(t, in, k.Set("x", 41), "")
		works(t, in, k.Define, "")
		works(t, in, k.Import, "")
		works(t, in, k.Show("x"), "41")
		works(t, in, k.UseDefined, "42")
		works(t, in, k.UseImport, "3")
	})
	t.Run("an error keeps what was done before it", func(t *testing.T) {
		in := k.start(t, k.beside())
		works(t, in, k.Set("kept", 1), "")
		fails(t, in, lines(k.Set("kept", 2), k.Show("unknown_name")))
		works(t, in, k.Show("kept"), "2")
	})
	t.Run("an exit code keeps everything too", func(t *testing.T) {
		in := k.start(t, k.beside())
		run(t, in, code(lines(k.Set("kept", 3), k.Exit(5))))
		works(t, in, k.Show("kept"), "3")
	})
	t.Run("two instances share nothing but their mount", func(t *testing.T) {
		dir := k.folder(t)
		a, b := k.start(t, k.spec(dir)), k.start(t, k.spec(dir))
		works(t, a, k.Set("secret", 1), "")
		fails(t, b, k.Show("secret"))
		works(t, a, k.Write("shared.txt", "by a"), "")
		works(t, b, k.Read("shared.txt"), "by a")
	})
	t.Run("the next instance of a closed one is fresh", func(t *testing.T) {
		a := k.start(t, k.beside())
		works(t, a, k.Set("secret", 1), "")
		a.Close()
		fails(t, k.start(t, k.beside()), k.Show("secret"))
	})
	t.Run("instances with other mounts do not see each other's files", func(t *testing.T) {
		a, b := k.start(t, k.spec(k.folder(t))), k.start(t, k.spec(k.folder(t)))
		works(t, a, k.Write("mine.txt", "of a"), "")
		fails(t, b, k.Read("mine.txt"))
		fails(t, b, k.Read("/workspace/mine.txt"))
	})
	k.testForced(t)
}

func (k *kit) testForced(t *testing.T) {
	t.Run("after a stop by force the state is what the exit says", func(t *testing.T) {
		in := k.start(t, k.beside())
		works(t, in, k.Set("x", 1), "")
		o := k.timed(t, in, k.Set("x", 2), k.Stubborn, grace)
		if o.Cause != sandbox.TimedOut {
			t.Errorf("it ended as %+v", o.Exit)
		}
		switch o.State {
		case sandbox.Kept:
			works(t, in, k.Show("x"), "2")
		case sandbox.Restored:
			works(t, in, k.Show("x"), "1")
		case sandbox.Fresh:
			fails(t, in, k.Show("x"))
		default:
			t.Errorf("its state is %v", o.State)
		}
		works(t, in, k.Set("x", 3), "")
		works(t, in, k.Show("x"), "3")
	})
}
