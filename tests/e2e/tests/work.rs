//! Real work, as agents do it, inside a real microVM.

use anyhow::Result;
use space_e2e::{Outcome, Sandbox};

/// Fails with everything that the command printed.
fn succeeded(outcome: &Outcome) {
    assert_eq!(outcome.exit.code, Some(0), "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_c_program_is_compiled_and_run() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let outcome = sandbox
        .sh(r#"
            set -e
            cat > primes.c <<'END'
            #include <stdio.h>
            int main(void) {
                int found = 0;
                for (int n = 2; found < 1000; n++) {
                    int prime = 1;
                    for (int d = 2; d * d <= n && prime; d++) prime = n % d != 0;
                    if (prime && ++found == 1000) printf("%d\n", n);
                }
                return 0;
            }
END
            cc -O2 -Wall -o primes primes.c
            ./primes
        "#)
        .await?;
    succeeded(&outcome);
    assert_eq!(outcome.stdout(), "7919\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_served_inside_is_cloned() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let outcome = sandbox
        .sh(r#"
            set -e
            git config --global user.email agent@example.test
            git config --global user.name agent
            git init -q -b main origin
            cd origin
            for n in 1 2 3; do echo "$n" > file; git add file; git commit -qm "change $n"; done
            cd ..
            git daemon --reuseaddr --export-all --base-path="$PWD" --listen=127.0.0.1 --detach --pid-file=git.pid
            git clone -q git://127.0.0.1/origin copy
            kill "$(cat git.pid)"
            git -C copy log --format=%s
        "#)
        .await?;
    succeeded(&outcome);
    assert_eq!(outcome.stdout(), "change 3\nchange 2\nchange 1\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cpython_passes_its_own_json_and_io_tests() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let outcome = sandbox.run(["python3", "-m", "test", "-q", "test_json", "test_io"]).await?;
    succeeded(&outcome);
    assert!(outcome.text().contains("SUCCESS"), "{outcome}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usual_tools_are_there() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let outcome = sandbox
        .sh("set -e; python3 -m pip --version; git --version; curl --version; node --version; make --version; \
             sudo -n true; whoami")
        .await?;
    succeeded(&outcome);
    assert!(outcome.stdout().ends_with("user\n"), "{outcome}");
    Ok(())
}
