import pickle
import unittest
from datetime import datetime, timezone

from space_sandbox import models
from space_sandbox._codec import decode, encode
from space_sandbox.errors import ApiError, FileNotFound, InvalidRequest, ProtocolError, RateLimited, from_problem

from .played import file_info, problem, sandbox


class CodecTest(unittest.TestCase):
    def test_what_a_newer_server_adds_is_passed_over_or_kept(self) -> None:
        read = decode(models.Sandbox, sandbox(state="hibernating", later={"a": 1}))
        self.assertEqual(read.state, "hibernating")
        self.assertEqual(f"{read.state}", "hibernating")
        self.assertNotIn("hibernating", [str(state) for state in models.SandboxState])
        self.assertIs(decode(models.Sandbox, sandbox()).state, models.SandboxState.RUNNING)

    def test_what_is_not_as_it_must_be_is_named(self) -> None:
        wrong = [
            (sandbox(vcpus="1"), "Sandbox.vcpus"),
            (sandbox(vcpus=True), "Sandbox.vcpus"),
            (sandbox(labels={"a": 1}), "Sandbox.labels.a"),
            (sandbox(created_at="yesterday"), "Sandbox.created_at"),
            (sandbox(env_names=[None]), r"Sandbox.env_names\[0\]"),
            ({}, "Sandbox.created_at is missing"),
            ([], "Sandbox is not"),
        ]
        for value, named in wrong:
            with self.assertRaisesRegex(ProtocolError, named):
                decode(models.Sandbox, value)

    def test_times_are_read_to_the_microsecond(self) -> None:
        read = decode(models.FileInfo, file_info("/a", modified_at="2026-01-31T07:00:00.123456789Z"))
        self.assertEqual(read.modified_at, datetime(2026, 1, 31, 7, 0, 0, 123456, timezone.utc))

    def test_a_request_says_nothing_of_what_was_not_asked_for(self) -> None:
        self.assertEqual(encode(models.CreateSandbox()), {})
        body = models.MoveFile(from_="a", to_base64=b"\xff")
        self.assertEqual(encode(body), {"from": "a", "to_base64": "/w=="})

    def test_bytes_are_base64_and_nothing_else(self) -> None:
        self.assertEqual(decode(models.Output, {"offset": 0, "data": "AP8="}).data, b"\0\xff")
        with self.assertRaises(ProtocolError):
            decode(models.Output, {"offset": 0, "data": "A P8="})


class ErrorTest(unittest.TestCase):
    def error(self, status: int, code: str, **more: object) -> ApiError:
        return from_problem(decode(models.Problem, problem(status, code, **more)))

    def test_a_code_has_its_exception_and_says_what_to_do(self) -> None:
        error = self.error(404, "file_not_found")
        self.assertIsInstance(error, FileNotFound)
        self.assertEqual((error.code, error.request_id), ("file_not_found", "req-1"))
        self.assertIn("it is file_not_found (file_not_found, request req-1)\n", str(error))
        self.assertTrue(error.hint)

    def test_a_code_of_a_newer_server_goes_by_its_status(self) -> None:
        self.assertIs(type(self.error(429, "later", retry_after=7)), RateLimited)
        self.assertEqual(self.error(429, "later", retry_after=7).retry_after, 7)
        self.assertIs(type(self.error(418, "later")), InvalidRequest)

    def test_every_code_has_a_hint(self) -> None:
        from space_sandbox._generated import HINTS

        self.assertEqual(set(HINTS), {str(code) for code in models.ProblemCode})

    def test_an_error_survives_another_process(self) -> None:
        error = pickle.loads(pickle.dumps(self.error(404, "not_found")))
        self.assertEqual((error.code, error.status), ("not_found", 404))


if __name__ == "__main__":
    unittest.main()
