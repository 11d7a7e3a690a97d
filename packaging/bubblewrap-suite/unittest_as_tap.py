"""Runs a unittest script unchanged and prints one TAP line per test: unittest_as_tap.py SCRIPT"""

import importlib.util
import sys
import unittest


class Tap(unittest.TestResult):
    def verdict(self, word, test, note=""):
        line = f"{word} {self.testsRun} - {test.id()}{note}"
        print(line, flush=True)
        print(line, file=sys.stderr, flush=True)

    def refuse(self, test, error):
        print(self._exc_info_to_string(error, test), file=sys.stderr)
        self.verdict("not ok", test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.verdict("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.verdict("ok", test, f" # SKIP {reason}")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.refuse(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self.refuse(test, error)


spec = importlib.util.spec_from_file_location("tests_of_bubblewrap", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
result = Tap()
unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
sys.exit(0 if result.wasSuccessful() else 1)
