package envd

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Config describes a [Server]. It is copied.
type Config struct {
	// Start starts a process; nil: with the package os. Whoever waits for all children of
	// this process gives a function of its own.
	Start func(path string, argv []string, attr *syscall.ProcAttr) (Child, error)
	// Users are the users that processes and files can be asked for as, by their names. All of
	// them are the one user that the machine has: they differ in their home.
	Users map[string]string
	// Default is the user where a request names none.
	Default string
	// Resized is called when a terminal has another size, with the process at it; nil: the
	// kernel tells the programs there by itself.
	Resized func(pid int)
	// Type types at a terminal, and gives what that shows by itself; nil: it is written.
	Type func(master *os.File, data []byte) (shown []byte, err error)
	// Env is the environment of every process, before the Setup's.
	Env map[string]string
}

// Child is a process that was started.
type Child interface {
	PID() int
	// Ended is closed when the process has ended; Status may be called from then on.
	Ended() <-chan struct{}
	Status() syscall.WaitStatus
}

// Server is the daemon. It is safe for concurrent use.
type Server struct {
	config Config
	mux    *http.ServeMux

	mu       sync.Mutex // guards what follows
	setup    Setup
	metadata map[fileID]map[string]string // of files whose file system keeps none

	jobs      sync.WaitGroup // what looks after processes and watchers
	processes processes
	watchers  watchers
}

// Close ends the processes and watchers that there are, and waits. No request is under way,
// and none comes any more.
func (s *Server) Close() {
	for _, p := range s.processes.list() {
		_ = p.signal(syscall.SIGKILL) // it may have ended
	}
	s.watchers.close()
	s.jobs.Wait()
}

// New makes a daemon.
func New(config Config) *Server {
	config.Users, config.Env = maps.Clone(config.Users), maps.Clone(config.Env)
	if config.Start == nil {
		config.Start = startWithOS
	}
	s := &Server{config: config, mux: http.NewServeMux(), metadata: map[fileID]map[string]string{}}
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("POST "+SetupPath, s.takeSetup)
	s.mux.HandleFunc("GET /envs", s.envs)
	s.mux.HandleFunc("GET /files", s.download)
	s.mux.HandleFunc("POST /files", s.upload)
	for name, serve := range s.processMethods() {
		s.mux.Handle("POST /process.Process/"+name, serve)
	}
	for name, serve := range s.fileMethods() {
		s.mux.Handle("POST /filesystem.Filesystem/"+name, serve)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		failHTTP(w, http.StatusNotFound, "there is nothing here")
	})
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) takeSetup(w http.ResponseWriter, r *http.Request) {
	var setup Setup
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&setup); err != nil {
		failHTTP(w, http.StatusBadRequest, "the setup cannot be read: "+err.Error())
		return
	}
	s.mu.Lock()
	s.setup = setup
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// envs gives the environment that every process begins with.
func (s *Server) envs(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	env := maps.Clone(s.setup.Env)
	s.mu.Unlock()
	if env == nil {
		env = map[string]string{}
	}
	answerJSON(w, http.StatusOK, env)
}

// account is who a request wants to be.
type account struct{ name, home string }

// userOf finds the user of a request: the one that it names, else the default.
func (s *Server) userOf(r *http.Request) (account, *connectError) {
	name, _, named := r.BasicAuth()
	if !named {
		name = r.URL.Query().Get("username")
	}
	return s.userNamed(name)
}

func (s *Server) userNamed(name string) (account, *connectError) {
	if name == "" {
		name = s.config.Default
	}
	home, known := s.config.Users[name]
	if !known {
		return account{}, failed(unauthenticated, "invalid username: '%s'", name)
	}
	return account{name, home}, nil
}

// environ is what a process begins with.
func (s *Server) environ(u account, more map[string]string) []string {
	env := map[string]string{}
	maps.Copy(env, s.config.Env)
	env["HOME"], env["USER"], env["LOGNAME"] = u.home, u.name, u.name
	s.mu.Lock()
	maps.Copy(env, s.setup.Env)
	s.mu.Unlock()
	maps.Copy(env, more)
	all := make([]string, 0, len(env))
	for name, value := range env {
		if name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(value, "\x00") {
			all = append(all, name+"="+value)
		}
	}
	return all
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has gone needs no answer
}

// failHTTP answers a request that is not a Connect call.
func failHTTP(w http.ResponseWriter, status int, message string) {
	answerJSON(w, status, map[string]any{"code": status, "message": message})
}
