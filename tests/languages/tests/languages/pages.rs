//! The code of other languages in the README and in the guide: it runs as it is shown, with the names that
//! the pages explain.

use super::language::ROOT;
use crate::server;
use libtest_mimic::Failed;
use std::process::Command;

const PAGES: [&str; 2] = ["README.md", "src/guide/redis_locks.md"];

const PYTHON: &str = r#"
import os, luagate, redis
gate = luagate.Luagate(redis.Redis.from_url(os.environ["REDIS_URL"]))
def trade(fence): print("trading under", fence)
"#;

const JAVASCRIPT: &str = "
import { Luagate } from 'luagate';
import { createClient } from 'redis';
const gate = new Luagate(createClient({ url: process.env.REDIS_URL }));
const trade = (permit) => console.log('trading under', permit.fence ?? permit);
";

const GO: &str = r#"
package main

import ("context"; "fmt"; "log"; "os"; "github.com/redis/go-redis/v9"; "luagate")

func trade[T any](ctx context.Context, permit T) error { fmt.Println("trading under", permit); return ctx.Err() }

func main() {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil { log.Fatal(err) }
	gate, err := luagate.New(redis.NewClient(options))
	if err != nil { log.Fatal(err) }
	defer gate.Close()
	ctx := context.Background()
	if err := example(ctx, gate); err != nil { log.Fatal(err) }
}

func example(ctx context.Context, gate *luagate.Gate) error {
"#;

const JAVA: &str = r#"
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.time.Duration;
import luagate.Luagate;
import redis.clients.jedis.RedisClient;

class Example {
  static void trade() { System.out.println("trading"); }
  public static void main(String[] args) throws Exception {
    var timeout = Duration.ofSeconds(2);
    var registry = new SimpleMeterRegistry();
    try (var redis = RedisClient.create(System.getenv("REDIS_URL")); var gate = new Luagate(redis)) {
"#;

/// The code of a language on a page: its fenced blocks, and the last code in the row of a table that begins
/// with its name.
fn examples(page: &str, language: &str) -> Vec<String> {
    let (fence, row) = match language {
        "python" => ("\n```python\n", "| Python |"),
        "javascript" => ("\n```js\n", "| JavaScript |"),
        "go" => ("\n```go\n", "| Go |"),
        _ => ("\n```java\n", "| Java |"),
    };
    let blocks = page.split(fence).skip(1).filter_map(|rest| rest.split("\n```").next());
    let rows = page.lines().filter(|line| line.starts_with(row)).filter_map(|line| line.rsplit('`').nth(1));
    blocks.chain(rows).filter(|code| code.contains("gate.")).map(str::to_owned).collect()
}

/// The command that runs an example, in the folder of the tests of the language.
fn command(language: &str, code: &str, folder: &tempfile::TempDir) -> std::io::Result<Command> {
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).map(|()| path)
    };
    let mut command;
    match language {
        "python" => {
            command = Command::new("./.venv/bin/python");
            command.args(["-c", &format!("{PYTHON}{code}\ngate.close()")]);
        }
        "javascript" => {
            command = Command::new("node");
            command.args(["--input-type=module", "-e", &format!("{JAVASCRIPT}{code}\nawait gate.close();")]);
        }
        "go" => {
            command = Command::new("go");
            command.arg("run").arg(file("main.go", format!("{GO}{code}\nreturn err\n}}\n"))?);
        }
        _ => {
            command = Command::new("java");
            command.args([
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                "target/classes:target/lib/*",
            ]);
            command.arg(file("Example.java", format!("{JAVA}{code}\n}}\n}}\n}}\n"))?);
        }
    }
    command.current_dir(format!("{ROOT}/tests/languages/{language}"));
    Ok(command)
}

/// The example of the section "Counters" of the README gives the counters to a metrics library.
pub fn example_of_the_counters_runs() -> Result<(), Failed> {
    let server = server();
    let readme = std::fs::read_to_string(format!("{ROOT}/clients/java/README.md"))?;
    let (_, section) = readme.split_once("\n## Counters\n").ok_or("no section Counters")?;
    let code = examples(section, "java").remove(0)
        + "gate.semaphore(\"counted\", 1).tryAcquire();
        System.out.print(registry.get(\"luagate.granted\").functionCounter().count());";
    let folder = tempfile::tempdir()?;
    let ran = command("java", &code, &folder)?.env("REDIS_URL", &server.url).output()?;
    let texts = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(texts[0], "1.0", "{code}\n{}", texts[1]);
    Ok(())
}

/// Each example acquires a permit, does its work and ends without an error.
pub fn examples_of_the_pages_run(language: &str) -> Result<(), Failed> {
    let (server, mut count) = (server(), 0);
    for page in PAGES {
        for code in examples(&std::fs::read_to_string(format!("{ROOT}/{page}"))?, language) {
            let folder = tempfile::tempdir()?;
            let ran = command(language, &code, &folder)?.env("REDIS_URL", &server.url).output()?;
            let (stdout, stderr) =
                (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert!(
                ran.status.success() && stdout.starts_with("trading"),
                "{page}:\n{code}\n{stdout}{stderr}"
            );
            count += 1;
        }
    }
    assert!(count > 0, "no example in {language}");
    Ok(())
}
